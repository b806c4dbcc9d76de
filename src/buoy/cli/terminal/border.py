"""Border: what the command is given by its surroundings, checked once before any verb sees it.

Invariants: every word of the command line is text that can be stored; standard input, output and error are there, and
no file of ours ever gets their numbers; Ctrl-C is a KeyboardInterrupt from here on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from buoy.errors import BadInput


def check_words(words: Sequence[str]) -> None:
    """Refuses words that are no UTF-8: Python would hold them as text that can neither be stored nor printed."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            shown = word.encode(errors="backslashreplace").decode()
            raise BadInput(f"an argument is not valid UTF-8: {shown[:80]!r}; write it in UTF-8") from error


def open_streams() -> None:
    """A stream that was closed (`>&-`) goes nowhere. Else the next file that is opened, maybe the store, would get its
    number, and whatever is written to that number would go into the store."""
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
    """Undoes what the start of the program did; see `buoy.__main__`."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
