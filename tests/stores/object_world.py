"""A storage that fails at the n-th call, and the operations that are tried on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

import msgspec

from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lineage import current_branch
from buoy.core.log.state import fold
from buoy.errors import Unavailable
from buoy.ports.records import Committed, Ended, FencedOut, Held, Orphan, Released, TaskChange, Wants, Write
from buoy.stores.objects.bucket import Changed, Exists
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock
from buoy.testing.contracts.harness import Author, claimed, completed, message, register, started

RUN = RunId("run-1")
R1 = RunnerId("r1")
MEDIC = RunnerId("medic")
WRITES = frozenset({"create", "replace", "put", "delete"})
REFUSALS = {"create": Exists, "replace": Changed}
SIGNAL = e.SignalWaited(leaf=LeafId("go#1"), name="go")


class Crash(BaseException):
    """The process is killed here. Nothing after it happens."""


class Fault:
    """A hook for a bucket: at the n-th counted call, before or after it, the process dies or the answer is lost.

    Phase `refused`: a conditional write is taken in, and a second sending of it is refused.
    """

    def __init__(self, at: int, phase: str, *, dies: bool) -> None:
        self.at = at
        self.phase = phase
        self.dies = dies
        self.calls = 0
        self.armed = False
        self.struck = False

    async def __call__(self, operation: str, key: str, phase: str) -> None:
        if not self.armed:
            return
        if self.struck and self.dies:
            raise Crash
        counted = operation in WRITES if self.dies else self.phase != "refused" or operation in REFUSALS
        if phase == "before" and counted:
            self.calls += 1
        strikes = phase == ("before" if self.phase == "before" else "after")
        if counted and self.calls == self.at and strikes and not self.struck:
            self.struck = True
            if self.dies:
                raise Crash
            if self.phase == "refused":
                raise REFUSALS[operation](key)
            raise Unavailable(f"{operation} {key}: no answer")


class World:
    """One storage, a process that will fail, and those who come after it."""

    def __init__(self, fault: Fault | None) -> None:
        self.clock = ManualClock()
        self.data = MemoryData()
        self.fault = fault
        self.nonces = count(1)
        self.author = self.new_author(RUN)

    def new_author(self, run_id: str) -> Author:
        return Author(RunId(run_id), self.clock, self.nonces, {})

    async def failing(self) -> ObjectStore:
        return await ObjectStore.on(MemoryBucket(self.data, self.fault), clock=self.clock)

    async def fresh(self) -> ObjectStore:
        return await ObjectStore.on(MemoryBucket(self.data), clock=self.clock)

    def index_keys(self) -> list[str]:
        return [key for key in self.data.keys if key.startswith(("tasks/", "held/", "wake/", "active/"))]


class Case(NamedTuple):
    """`prepare` brings about the state before, without faults; `work` is what fails and is tried again."""

    name: str
    prepare: Callable[[World, ObjectStore], Awaitable[None]]
    work: Callable[[World, ObjectStore], Awaitable[None]]


async def commit_for_sure(world: World, store: ObjectStore, write: Write) -> None:
    """As the journal does it: by number and nonce."""
    (outcome,) = await store.commit([write])
    if isinstance(outcome, FencedOut):
        there = await store.events(write.run_id, after=write.after_seq, limit=1)
        assert there and there[0].nonce == write.events[0].nonce, "another writer's commit"
    else:
        assert outcome == Committed(write.after_seq + len(write.events))


def commits(*bodies: e.Body, task: TaskChange | None = None, create: bool = False) -> Callable[..., Awaitable[None]]:
    drafts: dict[int, Write] = {}

    async def work(world: World, store: ObjectStore) -> None:
        if id(world) not in drafts:
            write = world.author.first(task) if create else world.author.draft(*bodies, task=task)
            drafts[id(world)] = write
        await commit_for_sure(world, store, drafts[id(world)])

    return work


async def nothing(world: World, store: ObjectStore) -> None:
    """No run yet."""


async def due(world: World, store: ObjectStore) -> None:
    await world.author.create(store)


async def held(world: World, store: ObjectStore) -> None:
    await due(world, store)
    assert [task.run_id for task in await store.claim_tasks(R1, Wants(), 5)] == [RUN]
    await world.author.append(store, claimed("r1"), task=Held(R1))


async def parked(world: World, store: ObjectStore) -> None:
    await held(world, store)
    await world.author.append(store, SIGNAL, task=Released(due_at=None, now=0.0))


async def ended(world: World, store: ObjectStore) -> None:
    await held(world, store)
    await world.author.append(store, e.WorkflowCompleted(), task=Ended())


async def owing(world: World, store: ObjectStore) -> None:
    """Ended, but its holder has something left to do."""
    await held(world, store)
    await world.author.append(store, e.WorkflowCompleted())


async def settled(world: World, store: ObjectStore) -> None:
    await owing(world, store)
    await settle(world, store)


async def other_dead(world: World, store: ObjectStore) -> None:
    await register(store, "r0")
    await world.author.create(store, Held(RunnerId("r0")))
    await world.new_author("run-2").create(store, Held(RunnerId("r0")))


async def taskless(world: World, store: ObjectStore) -> None:
    """A commit that claims an end of the task although the run is active: an older version might have left that."""
    await held(world, store)
    await world.author.append(store, started(1), task=Ended())


async def messaged(world: World, store: ObjectStore) -> None:
    await held(world, store)
    await store.send(message(RUN, "hello"))


async def send(world: World, store: ObjectStore) -> None:
    assert (await store.send(message(RUN, "hello"))).number == 1


async def claim(world: World, store: ObjectStore) -> None:
    await store.claim_tasks(R1, Wants(), 5)


async def declare_dead(world: World, store: ObjectStore) -> None:
    await store.declare_dead(RunnerId("r0"), "proof", cause="taken_over", evidence={"proof": "lock"})


async def release(world: World, store: ObjectStore) -> None:
    await store.release(RUN, R1, Released(due_at=world.clock.now() + 100, now=world.clock.now()))


async def settle(world: World, store: ObjectStore) -> None:
    await store.release(RUN, R1, Ended())


async def adopt(world: World, store: ObjectStore) -> None:
    await store.requeue_orphan(Orphan(RUN, None, "it has no task"))


async def look(world: World, store: ObjectStore) -> None:
    await store.mark_read(RUN, R1, 1)


COMPLETED = (started(1), completed(1))
BRANCHED = (claimed("r1"), e.BranchCreated(branch=1, parent=0, cutoff_seq=2))  # type: ignore[arg-type]
START = 1_000_000.0

CASES: list[Callable[[], Case]] = [
    lambda: Case("create", nothing, commits(create=True)),
    lambda: Case("create held", nothing, commits(create=True, task=Held(R1))),
    lambda: Case("create due later", nothing, commits(create=True, task=Released(due_at=START + 500, now=START))),
    lambda: Case("claim", due, claim),
    lambda: Case("take", due, commits(claimed("r1"), task=Held(R1))),
    lambda: Case("append", held, commits(*COMPLETED)),
    lambda: Case("wait for a time", held, commits(*COMPLETED, task=Released(due_at=START + 500, now=START))),
    lambda: Case("wait for a message", held, commits(SIGNAL, task=Released(due_at=None, now=0.0))),
    lambda: Case("release without an event", held, release),
    lambda: Case("send to a held run", held, send),
    lambda: Case("send to a parked run", parked, send),
    lambda: Case("look at a message", messaged, look),
    lambda: Case("wait after a message", messaged, commits(SIGNAL, task=Released(due_at=None, now=0.0))),
    lambda: Case("claim by a message", _parked_with_message, claim),
    lambda: Case("declare_dead", other_dead, declare_dead),
    lambda: Case("end", held, commits(e.WorkflowCompleted(), task=Ended())),
    lambda: Case("bring back", ended, commits(*BRANCHED, task=Held(R1))),
    lambda: Case("settle", owing, settle),
    lambda: Case("bring back what settled", settled, commits(*BRANCHED, task=Held(R1))),
    lambda: Case("adopt", taskless, adopt),
]


async def _parked_with_message(world: World, store: ObjectStore) -> None:
    await parked(world, store)
    await send(world, store)


async def get_hold(world: World, store: ObjectStore, run_id: str) -> bool:
    """Whether the medic gets the run's task, now or when its time has come, by claiming or by adopting."""
    for wait_s in (0.0, 1000.0):
        world.clock.advance(wait_s)
        if run_id in [task.run_id for task in await store.claim_tasks(MEDIC, Wants(), 50)]:
            return True
        for orphan in await store.orphans(50):
            await store.requeue_orphan(orphan)
        if run_id in [task.run_id for task in await store.claim_tasks(MEDIC, Wants(), 50)]:
            return True
    return False


async def end_run(world: World, store: ObjectStore, run_id: str) -> None:
    """Takes the run over and ends it, on its present branch."""
    log = await store.events(RunId(run_id))
    failure = e.WorkflowFailed(error=e.ErrorInfo(type="E", message="over"))
    bodies: list[tuple[e.Body, TaskChange]] = [(claimed("medic"), Held(MEDIC)), (failure, Ended())]
    for body, task in bodies:
        nonce = f"medic-{len(log)}"
        log.append(e.Event(len(log) + 1, world.clock.now(), body, branch=current_branch(log), nonce=nonce))
        write = Write(RunId(run_id), len(log) - 1, (log[-1],), document(fold(RunId(run_id), log)), task)
        assert await store.commit([write]) == [Committed(len(log))]


def folded(log: list[e.Event]) -> bytes:
    return msgspec.json.encode(document(fold(RUN, log)))
