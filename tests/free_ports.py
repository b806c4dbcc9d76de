"""Ports for servers that a test starts, and starts again, as processes of their own.

They lie below those that Linux gives to outgoing connections (32768 and up). One of those could take the port of a
server that is not up yet, or is being restarted.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

_RANGE = range(12_000, 32_000)


def free_ports(number: int) -> list[int]:
    """So many ports on which nothing listens now, chosen at random: other processes choose, too."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < number:
            listening = stack.enter_context(socket.socket())
            port = random.SystemRandom().choice(_RANGE)
            try:
                listening.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
