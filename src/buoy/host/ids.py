"""The system's ids: sortable, unique, and never repeated after a fork."""

from __future__ import annotations

import os
import secrets
import time
from itertools import count

# No letters that people mix up, and in the order of the characters, so that ids sort by time.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_TIME_CHARS = 10
_RANDOM_CHARS = 10


# Another number in every forked child. Asking for the process id would be a system call for every commit.
_life = 0


def _forked() -> None:
    global _life
    _life += 1


os.register_at_fork(after_in_child=_forked)


class SystemIds:
    """Unique without coordination."""

    def __init__(self) -> None:
        self._begin()

    def new(self, prefix: str = "") -> str:
        """`prefix`, the time in milliseconds, 50 random bits: later ids sort after earlier ones."""
        now_ms = time.time_ns() // 1_000_000
        return f"{prefix}{_base32(now_ms, _TIME_CHARS)}{_base32(secrets.randbits(50), _RANDOM_CHARS)}"

    def nonce(self) -> str:
        """Unique across processes by its random part, within one by counting."""
        if self._life != _life:
            # A forked child must not repeat its parent's nonces.
            self._begin()
        return f"{self._prefix}-{next(self._count)}"

    def _begin(self) -> None:
        self._life = _life
        self._prefix = secrets.token_hex(6)
        self._count = count(1)


def _base32(number: int, chars: int) -> str:
    """Two characters at a time."""
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(5 * (chars - 2), -1, -10)])
