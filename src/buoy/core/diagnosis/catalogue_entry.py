"""An entry of the catalogue: one code with its title, its origin and its remedy. Data only."""

from __future__ import annotations

import msgspec

from buoy.core.advice import Hint


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One code. `trouble` False: it looks odd and is healthy; `remedy` then says why nothing need be done."""

    code: str
    # Two or three words, wherever the code is shown.
    word: str
    title: str
    trouble: bool = True
    # How a run gets there.
    how: str
    # What Buoy does about it.
    remedy: str
    you_can: tuple[Hint, ...] = ()
