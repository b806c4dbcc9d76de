"""Broken runners: finds runner records that cannot be read, and sets them aside.

Invariants: a record that cannot be read proves no death. The doctor sets it aside only if its runner holds no run, has
no lock, and does not beat between two looks. Where it holds runs a person has to say that its
process ended; never of a runner that is seen alive. The store keeps the bytes and marks the runner as gone.
"""

from __future__ import annotations

import msgspec

from buoy.core.ids import RunnerId
from buoy.core.limits import LOOKS_APART_S, RUNS_PAGE_MAX
from buoy.core.log.wording import counted
from buoy.engine.client.client import Client
from buoy.errors import WrongState
from buoy.ports.host import Sight
from buoy.ports.records import Evidence, RunnerRecord, RunQuery
from buoy.recovery.failure_detector import FailureDetector

BY_A_PERSON = "a person declared it dead"


class BrokenRunner(msgspec.Struct, frozen=True):
    """A runner whose record cannot be read. `alive`: its lock is held, or cannot be looked at from here."""

    record: RunnerRecord
    alive: bool
    holds: int = 0
    more: bool = False

    @property
    def idle(self) -> bool:
        return not (self.alive or self.holds)

    @property
    def text(self) -> str:
        """What is wrong with it, and what to do about it."""
        runner = self.record.info.id
        what = f"runner {runner}: {self.record.unreadable}"
        held = f"{'more than ' if self.more else ''}{counted(self.holds, 'run')}"
        if self.alive:
            return f"{what}; its process may live, so it is left alone: stop that process, then look again"
        if self.holds:
            return (
                f"{what}; it holds {held}, and nothing proves that its process ended; "
                f"if you know that it did: `buoy doctor --declare-dead {runner}`"
            )
        return f"{what}; it holds no run, and --fix sets it aside"


def is_broken(record: RunnerRecord, sight: Sight) -> bool:
    """Whether a record cannot be read and nothing else proves the end of its process."""
    return record.gone_at is None and record.unreadable is not None and sight.proof is None


async def broken_runners(client: Client) -> list[BrokenRunner]:
    """The runners whose records cannot be read, and whose death nothing proves."""
    records = await client.store.runners()
    sights = await client.liveness.look(records)
    return [
        await _look(client, record, sights[record.info.id])
        for record in records
        if is_broken(record, sights[record.info.id])
    ]


async def _look(client: Client, record: RunnerRecord, sight: Sight) -> BrokenRunner:
    page = await client.store.find_runs(RunQuery(holder=record.info.id), limit=RUNS_PAGE_MAX)
    holds = len(page.runs) + len(page.broken)
    return BrokenRunner(record, alive=sight.seen, holds=holds, more=page.cursor is not None)


async def set_aside(client: Client, before: list[BrokenRunner], *, apart_s: float = LOOKS_APART_S) -> set[RunnerId]:
    """Declares gone those that hold nothing, and did not change between a look `apart_s` ago and now."""
    idle = {each.record.info.id: each.record for each in before if each.idle}
    detector = FailureDetector(client.store, client.liveness, client.clock)
    done: set[RunnerId] = set()
    for each in await broken_runners(client) if idle else ():
        if each.idle and idle.get(each.record.info.id) == each.record:
            proof = f"its record cannot be read, it holds no run, and it did not beat for {apart_s:g} s"
            if await detector.declare_dead(each.record, {"proof": proof}) is not None:
                done.add(each.record.info.id)
    return done


async def declare_dead(client: Client, runner: str) -> int:
    """On the word of a person: the runner's process ended. How many runs were released."""
    found = next((each for each in await broken_runners(client) if each.record.info.id == runner), None)
    if found is None:
        raise WrongState(
            f"runner {runner} has no record that cannot be read; a sweeper takes over the runs of a dead runner: "
            "`buoy sweeper --once`; see `buoy status` for all runners"
        )
    if found.alive:
        raise WrongState(f"runner {runner} may live: its lock is held or cannot be looked at; stop its process first")
    evidence: Evidence = {"proof": BY_A_PERSON, "by": client.actor, "record": found.record.unreadable}
    detector = FailureDetector(client.store, client.liveness, client.clock)
    return await detector.declare_dead(found.record, evidence) or 0
