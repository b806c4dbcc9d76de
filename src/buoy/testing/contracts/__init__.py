"""The contract of a store, as tests. Whoever writes a store runs them on it:

    class TestMyStore(StoreContract):
        async def open(self, place: Path, clock: Clock) -> Store:
            return await MyStore.open(place / "data", clock=clock)

`open` is called several times for the same place: each call stands for another process on the same data. The tests are
plain pytest ones that use `tmp_path`; they never sleep and never ask for the time.
"""

from __future__ import annotations

from buoy.testing.contracts.archive import ArchiveContract
from buoy.testing.contracts.clocks import ClockContract
from buoy.testing.contracts.definitions import DefinitionContract
from buoy.testing.contracts.inbox import InboxContract
from buoy.testing.contracts.lists import ListContract
from buoy.testing.contracts.log import LogContract
from buoy.testing.contracts.runners import RunnerContract
from buoy.testing.contracts.stage import Author, Contract, Stage, on_stage
from buoy.testing.contracts.tasks import TaskContract
from buoy.testing.contracts.timetable import TimetableContract
from buoy.testing.contracts.wakes import WakeContract


class StoreContract(
    LogContract,
    InboxContract,
    TaskContract,
    WakeContract,
    ClockContract,
    RunnerContract,
    ListContract,
    ArchiveContract,
    DefinitionContract,
    TimetableContract,
):
    """All that a store must keep."""


__all__ = ["Author", "Contract", "Stage", "StoreContract", "on_stage"]
