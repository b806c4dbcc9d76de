"""The contract of a store, as tests. Run them on a store of your own:

    class TestMyStore(StoreContract):
        async def open(self, place: Path, clock: Clock) -> Store:
            return await MyStore.open(place / "data", clock=clock)

A store with a clock of its own (`Store.has_clock`) keeps `TimedStoreContract` instead. It opens itself in
`open_timed`, which names the clock that the store must use as its own.

`open` is called several times for the same place: each call stands for another process on the same data. The tests are
plain pytest ones that use `tmp_path`; they never sleep and never ask for the time.
"""

from __future__ import annotations

from buoy.testing.contracts.archive import ArchiveContract
from buoy.testing.contracts.clocks import ClockContract, OwnClockContract, ReadersClockContract
from buoy.testing.contracts.counts import CountContract
from buoy.testing.contracts.definitions import DefinitionContract
from buoy.testing.contracts.harness import Author, Contract, StoreHarness, with_harness
from buoy.testing.contracts.inbox import InboxContract
from buoy.testing.contracts.lists import ListContract
from buoy.testing.contracts.log import LogContract
from buoy.testing.contracts.moves import MoveContract
from buoy.testing.contracts.retirement import RetirementContract
from buoy.testing.contracts.runners import RunnerContract
from buoy.testing.contracts.schedules import ScheduleContract
from buoy.testing.contracts.tasks import TaskContract
from buoy.testing.contracts.tokens import TokenContract
from buoy.testing.contracts.tombstones import TombstoneContract
from buoy.testing.contracts.wakes import WakeContract


class _AnyStoreContract(
    LogContract,
    InboxContract,
    TaskContract,
    WakeContract,
    ClockContract,
    RunnerContract,
    RetirementContract,
    ListContract,
    CountContract,
    MoveContract,
    ArchiveContract,
    TombstoneContract,
    DefinitionContract,
    ScheduleContract,
    TokenContract,
):
    """All that a store must keep, whether it has a clock or not."""


class StoreContract(_AnyStoreContract, ReadersClockContract):
    """All that a store without a clock of its own must keep."""


class TimedStoreContract(_AnyStoreContract, OwnClockContract):
    """All that a store with a clock of its own must keep."""

    has_clock = True


__all__ = ["Author", "Contract", "StoreContract", "StoreHarness", "TimedStoreContract", "with_harness"]
