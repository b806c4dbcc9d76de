"""Store mutants: planted bugs of logs, tasks and verdicts, each between a process and the real store."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log.document import Document
from buoy.core.log.events import Event
from buoy.errors import Unavailable
from buoy.ports.records import Committed, Ended, Evidence, Orphan, Outcome, Released, Task, Wants, Write
from buoy.ports.store import Store
from buoy.recovery.sweep.sweeper import Sweeper
from simulator.host import SimLiveness
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from buoy.ports.records import RunnerRecord
    from simulator.world import World


class NoFencing(Mutant):
    """The store accepts a stale append: it gives the events the next free numbers."""

    name = "no-fencing"
    rules = ("acknowledged before it was durable", "one writer at a time", "executed twice at once")
    enough = 50

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        # A writer that was let through once knows wrong numbers from then on.
        writes = [_renumbered(write, write.after_seq) for write in writes]
        outcomes = await store.commit(writes)
        for place, write in enumerate(writes):
            for _ in range(5):
                if isinstance(outcomes[place], Committed) or not write.after_seq:
                    break
                outcomes[place] = (await store.commit([_renumbered(write, outcomes[place].head_seq)]))[0]
        return outcomes


def _renumbered(write: Write, after_seq: int) -> Write:
    behind = after_seq + 1 - write.events[0].seq
    moved = tuple(msgspec.structs.replace(event, seq=event.seq + behind) for event in write.events)
    return msgspec.structs.replace(write, after_seq=after_seq, events=moved)


class AckBeforeDurable(Mutant):
    """Now and then a commit is called done before it is there. It comes a little later."""

    name = "ack-before-durable"
    rules = ("acknowledged before it was durable", "effect before commit")
    enough = 20

    def __init__(self) -> None:
        super().__init__()
        self._count = count(1)
        self._late: list[Write] = []

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        late, self._late = self._late, []
        if late:
            await store.commit(late)
        if next(self._count) % 7 == 0:
            self._late = list(writes)
            return [Committed(write.events[-1].seq) for write in writes]
        return await store.commit(writes)


class LoseStart(Mutant):
    """The first event of some runs is called durable, and is not."""

    name = "lose-a-start"
    rules = ("acknowledged before it was durable",)
    enough = 20

    def __init__(self) -> None:
        super().__init__()
        self._count = count(1)

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        if all(write.after_seq == 0 for write in writes) and next(self._count) % 3 == 0:
            return [Committed(write.events[-1].seq) for write in writes]
        return await store.commit(writes)


class StaleDocument(Mutant):
    """The document that is stored with a commit is the one of the commit before."""

    name = "stale-document"
    rules = ("the document is the folded log",)
    enough = 10

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[RunId, Document] = {}

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        old = [
            msgspec.structs.replace(
                write,
                document=msgspec.structs.replace(
                    write.document, completed_count=self._last.get(write.run_id, write.document).completed_count
                ),
            )
            for write in writes
        ]
        self._last.update({write.run_id: write.document for write in writes})
        return await store.commit(old)


class ReadErrorIsAbsence(Mutant):
    """A log that cannot be read counts as one that is not there."""

    name = "read-error-is-absence"
    rules = ("runs end or wait for something real", "executed again")
    enough = 50

    async def events(self, store: Store, run_id: RunId, after: int, limit: int | None) -> list[Event]:
        try:
            return await store.events(run_id, after, limit)
        except Unavailable:
            return []


class LoseWakeUp(Mutant):
    """A run that is given back until a time is given back without that time, and no sweep looks for it."""

    name = "lose-a-wake-up"
    rules = ("runs end or wait for something real",)
    enough = 30

    def install(self, world: World) -> None:
        async def nothing(sweeper: Sweeper) -> None:
            return None

        self.patch(Sweeper, "whole", nothing)

    def release(self, change: Released | Ended) -> Released | Ended:
        return msgspec.structs.replace(change, due_at=None) if isinstance(change, Released) else change

    def orphans(self, found: list[Orphan]) -> list[Orphan]:
        return []


class ForgetAudit(Mutant):
    """A takeover does not name its evidence."""

    name = "forget-the-audit"
    rules = ("recoveries are audited",)
    enough = 10

    async def claim_tasks(self, store: Store, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        tasks = await store.claim_tasks(runner, wants, limit)
        return [msgspec.structs.replace(task, evidence={}) for task in tasks]


class ClaimTwice(Mutant):
    """Now and then two runners get the same task: a claim is read and written in two moments."""

    name = "claim-twice"
    rules = ("a task has one holder", "executed twice at once", "one writer at a time")
    enough = 20

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[RunnerId, Task] | None = None

    async def claim_tasks(self, store: Store, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        tasks = await store.claim_tasks(runner, wants, limit)
        twice = [] if tasks or self._last is None or self._last[0] == runner else [self._last[1]]
        if tasks or twice:
            self._last = (runner, tasks[-1]) if tasks else None
        return [*tasks, *twice]


class BuryTheFrozen(Mutant):
    """A process that does not move counts as dead, although its lock is held."""

    name = "bury-the-frozen"
    rules = ("no living runner is declared dead",)
    enough = 80

    def install(self, world: World) -> None:
        def proof(liveness: SimLiveness, record: RunnerRecord) -> Evidence | None:
            process = world.processes[record.info.id]
            if liveness.sees(record) and (process.loop.frozen or not process.alive):
                return {"proof": "it does not move"}
            return None

        self.patch(SimLiveness, "proof_of_death", proof)


class PurgeTheLiving(Mutant):
    """A purge takes a run with it that has not ended."""

    name = "purge-the-living"
    rules = ("only what ended is purged", "runs end or wait for something real", "runs end when all is answered")
    enough = 60

    def install(self, world: World) -> None:
        self._world: Any = world

    def purges(self, run_id: RunId) -> None:
        for other in self._world.known_runs():
            state = self._world.state(other)
            if state.status is not None and not state.ending_seq:
                self._world.remember(RunId(other))
                self._world.storage.erase(RunId(other))
                return


class _LateBlow(Mutant):
    """What was committed is struck now and then, a commit later."""

    every: int

    def install(self, world: World) -> None:
        self._world: Any = world
        self._count = count(1)
        self._last = (RunId(""), 0)

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = await store.commit(writes)
        if next(self._count) % self.every == 0:
            self.strike(*self._last)
        self._last = (writes[0].run_id, writes[0].after_seq + 1)
        return outcomes

    def strike(self, run_id: RunId, first_seq: int) -> None:
        raise NotImplementedError


class LoseEvent(_LateBlow):
    """A commit that was there is lost later on."""

    name = "lose-an-event"
    rules = (
        "runs end or wait for something real",
        "no acknowledged commit is lost",
        "numbers without gaps",
        "a log only grows",
    )
    enough = 10
    every = 40

    def strike(self, run_id: RunId, first_seq: int) -> None:
        self._world.storage.erase(run_id, first_seq)


class RewriteHistory(_LateBlow):
    """An event that was there has another time later on."""

    name = "rewrite-history"
    rules = ("a log only grows",)
    enough = 20
    every = 20

    def strike(self, run_id: RunId, first_seq: int) -> None:
        self._world.look(run_id)
        self._world.storage.falsify(run_id, first_seq)


STORE_MUTANTS: tuple[type[Mutant], ...] = (
    NoFencing,
    AckBeforeDurable,
    LoseStart,
    LoseEvent,
    RewriteHistory,
    StaleDocument,
    ReadErrorIsAbsence,
    LoseWakeUp,
    ForgetAudit,
    ClaimTwice,
    BuryTheFrozen,
    PurgeTheLiving,
)
