"""Border: checks what the process gets from its environment, once, before any verb runs.

Invariants: every argument is valid UTF-8. Standard input, output and error are open, so no other file gets their
numbers. Ctrl-C raises KeyboardInterrupt.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from buoy.errors import BadInput


def check_words(words: Sequence[str]) -> None:
    """Refuses arguments that are not UTF-8: Python decodes them to text that cannot be stored or printed."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            shown = word.encode(errors="backslashreplace").decode()
            raise BadInput(f"an argument is not valid UTF-8: {shown[:80]!r}; write it in UTF-8") from error


def open_streams() -> None:
    """Opens a closed stream (`>&-`) on the null device.

    Otherwise the next file that is opened gets its number. If that file is the store, printed text would go into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            if not _is_open(number):
                os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def hear_interrupts() -> None:
    """Lets Ctrl-C raise KeyboardInterrupt again; `buoy.__main__` disabled that during start-up."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
