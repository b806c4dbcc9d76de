"""Times: whose clock a number is of.

Two kinds of time pass through Buoy, and they are never compared. The *run's time* is in events and documents: its
writers tell it, and it never goes back. It is a plain float here. The *store's time* is in records: due times,
beats, messages, deaths. It is a `StoreTime`, which the type checker does not let code compare with a plain float.

`run_time` is the only way from one to the other. It needs one moment that both clocks have dated: the last commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:

    class StoreTime:
        """A moment by the clock of a store. At run time a float; to the type checker a kind of its own."""

        def __init__(self, at: float) -> None: ...
        def __eq__(self, other: object) -> bool: ...
        def __hash__(self) -> int: ...
        def __float__(self) -> float: ...
        def __lt__(self, other: StoreTime) -> bool: ...
        def __le__(self, other: StoreTime) -> bool: ...
        def __gt__(self, other: StoreTime) -> bool: ...
        def __ge__(self, other: StoreTime) -> bool: ...
        def __add__(self, span_s: float) -> StoreTime: ...
        @overload
        def __sub__(self, other: StoreTime) -> float: ...
        @overload
        def __sub__(self, other: float) -> StoreTime: ...
        def __sub__(self, other: StoreTime | float) -> StoreTime | float: ...

else:
    # A plain float costs nothing on the way to and from the disk.
    StoreTime = float


def run_time(at: StoreTime, *, taken_at: StoreTime, dated_at: float) -> float:
    """That moment in the time of a run whose last commit the store took at `taken_at`, and its writer dated `dated_at`.

    A store without a clock repeats the writer: both are the same, and `at` stays as it is.
    """
    return float(at) - (float(taken_at) - dated_at)
