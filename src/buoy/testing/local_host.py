"""The host of tests: a store that several simulated processes share, and what a process needs around its runner.

Everything happens in this process and on one clock, so that hints are certain and death is known.
Absent on purpose: heartbeats, lock files and the sweeper's loop. A test that drops a process says so, and the next
process sweeps.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from weakref import WeakKeyDictionary

from buoy.core.extras import INSTALL_POSTGRES
from buoy.core.ids import RunId, RunnerId
from buoy.engine.authoring.definitions import Registry, Step, Workflow
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.errors import BadInput, NotAllowedHere
from buoy.host.processes import boot_id, host, pid_namespace, process_started
from buoy.ports.host import Clock, Ids, Liveness, Shell, Threads
from buoy.ports.records import Ended, Evidence, Message, Orphan, Outcome, Receipt, Released, RunnerInfo, Write
from buoy.ports.store import Store
from buoy.stores import open_store
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.store import ObjectStore
from buoy.testing.deaths import InlineLiveness
from buoy.testing.skipping import Outside, SkippingAlarms
from buoy.wiring.worker import Worker, WorkerPorts, assemble_worker

if TYPE_CHECKING:
    from buoy.testing.postgres_shelf import PostgresShelf
    from buoy.testing.s3_shelf import S3Shelf

STORES = ("memory", "sqlite", "folder", "postgres", "s3")
_COUNTED = frozenset(
    {
        "beat", "claim_tasks", "close", "counts", "define", "definition", "events", "find_runs", "inbox", "landed",
        "mark_read", "moved", "now", "orphans", "register", "retire", "run", "run_ids", "runners", "suspect",
        "unread_runs", "unregistered",
    }
)  # fmt: skip


class Hints:
    """Wakes waiting tasks after a write. Here that is certain: all writers are in this process."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._waiting: list[asyncio.Future[bool]] = []
        # When tasks without a holder come due.
        self._due: list[float] = []
        self._written = 0

    def written(self, due_at: float | None = None) -> None:
        self._written += 1
        if due_at is not None:
            heapq.heappush(self._due, due_at)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(True)

    async def wait(self, known: int) -> int:
        """Waits until more was written than is known, or something comes due. What is known now."""
        if known != self._written:
            return self._written
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(waiter)
        now = self.clock.now()
        while self._due and self._due[0] <= now:
            heapq.heappop(self._due)
        timer = loop.call_later(self._due[0] - now, _wake, waiter) if self._due else None
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
        return self._written


def _wake(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(True)


class LocalStore:
    """A store as a process of a test sees it. Calls that are under way are waited for before the clock moves."""

    # A commit outside of the journal's task could not be cut off.
    commits_inline = False
    single_host = True
    self_fencing = False

    def __init__(self, store: Store, hints: Hints, outside: Outside) -> None:
        self.inner = store
        self.hints = hints
        self._outside = outside
        self._known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return self._counted(found) if name in _COUNTED else found

    def _counted(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            with self._outside.job():
                return await method(*args, **kwargs)

        return call

    async def commit(self, writes: Sequence[Write]) -> list[Outcome]:
        with self._outside.job():
            outcomes = await self.inner.commit(writes)
        for write in writes:
            self.hints.written(write.task.due_at if isinstance(write.task, Released) else None)
        return outcomes

    async def send(self, message: Message) -> Receipt:
        with self._outside.job():
            receipt = await self.inner.send(message)
        self.hints.written()
        return receipt

    async def release(
        self, run_id: RunId, runner: RunnerId, change: Released | Ended, head_seq: int | None = None
    ) -> bool:
        with self._outside.job():
            done = await self.inner.release(run_id, runner, change, head_seq)
        self.hints.written(change.due_at if isinstance(change, Released) else None)
        return done

    async def declare_dead(self, *args: Any, **kwargs: Any) -> int | None:
        with self._outside.job():
            released = await self.inner.declare_dead(*args, **kwargs)
        self.hints.written()
        return released

    async def requeue_orphan(self, orphan: Orphan) -> bool:
        with self._outside.job():
            adopted = await self.inner.requeue_orphan(orphan)
        self.hints.written()
        return adopted

    async def wait_for_change(self, timeout_s: float) -> bool:
        """However long it takes: hints are certain here, and looking every second would take a year of seconds."""
        who = asyncio.current_task()
        self._known[who] = await self.hints.wait(self._known.get(who, -1))
        return True


class KnownDeaths(InlineLiveness):
    """Proof of death by having seen it: all processes of a test are here."""

    def __init__(self) -> None:
        self.dead: set[RunnerId] = set()

    def withdraw(self, runner: RunnerId) -> None:
        self.dead.add(runner)

    def proof_by_name(self, runner: RunnerId) -> Evidence | None:
        return {"proof": "it was dropped"} if runner in self.dead else None


class Shelf:
    """Where the data of one test lies, and how a process opens it. `with` makes the place, and removes it."""

    def __init__(self, kind: str, folder: Path | None = None) -> None:
        if kind not in STORES:
            raise BadInput(f"there is no store {kind!r} for tests; choose one of {', '.join(STORES)}")
        assert kind == "memory" or folder is not None, "a store on disk needs a folder"
        self.kind = kind
        self._folder = folder
        self._data = MemoryData()

    def __enter__(self) -> Self:
        if self.kind == "postgres":
            self._schema().make()
        return self

    def __exit__(self, *_: object) -> None:
        if self.kind == "postgres":
            self._schema().drop()
        elif self.kind == "s3":
            self._prefix().remove()

    async def open(self, clock: Clock) -> Store:
        if self.kind == "memory":
            return cast(Store, await ObjectStore.on(MemoryBucket(self._data), clock=clock, single_host=True))
        if self.kind == "postgres":
            return await self._schema().open(clock)
        if self.kind == "s3":
            return await self._prefix().open(clock)
        assert self._folder is not None
        place = f"sqlite:///{self._folder / 'crashtest.db'}" if self.kind == "sqlite" else f"file://{self._folder}"
        return await open_store(place, clock)

    def _schema(self) -> PostgresShelf:
        try:
            from buoy.testing.postgres_shelf import PostgresShelf
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "psycopg":
                raise
            raise BadInput(f"the driver psycopg is missing; install it with: {INSTALL_POSTGRES}") from error
        assert self._folder is not None
        return PostgresShelf(self._folder)

    def _prefix(self) -> S3Shelf:
        from buoy.testing.s3_shelf import S3Shelf

        assert self._folder is not None
        return S3Shelf(self._folder)


def runner_info(name: str, registry: Registry, queues: Iterable[str], *, real: bool = False) -> RunnerInfo:
    """Who a runner is. `real`: it is alone in its process, whose death can be proven by others."""
    pid = os.getpid()
    return RunnerInfo(
        id=RunnerId(name),
        host=host() if real else "test",
        boot_id=boot_id() if real else "test",
        pid_namespace=pid_namespace() if real else "test",
        pid=pid,
        process_started=process_started(pid) if real else "",
        nonce=name,
        queues=tuple(queues),
        **registry.advertised(),
    )


def local_worker(
    store: Store, registry: Registry, info: RunnerInfo, clock: Clock, ids: Ids, threads: Threads,
    options: RunnerOptions, liveness: Liveness, *, shell: Shell | None = None,
) -> Worker:  # fmt: skip
    """A worker for skipped time. Sync workflows run inline: a thread that waits would keep the clock from moving."""
    ports = WorkerPorts(store, clock, ids, liveness, threads, store.reopen, shell)
    worker = assemble_worker(ports, registry, info, options=options)
    worker.runner.timers = SkippingAlarms(clock)
    worker.runner.workflow_pool = None
    return worker


def steps_executing(runner: Runner) -> bool:
    return any(execution.leaves.executing for execution in runner.executions.values())


def neighbours(workflow: Workflow[..., Any]) -> tuple[list[Workflow[..., Any]], set[str]]:
    """The workflows that its module can name, and the queues that they and its steps are for."""
    found: list[Workflow[..., Any]] = [workflow]
    queues = {"default", workflow.queue}
    for value in list(getattr(workflow.fn, "__globals__", {}).values()):
        if isinstance(value, Step) and value.queue is not None:
            found.append(value.remote)
            queues.add(value.queue)
        elif isinstance(value, Workflow) and value.name != workflow.name:
            found.append(value)
            queues.add(value.queue)
    return found, queues


def check_no_loop(what: str) -> None:
    """Refuses to run loops inside of a running one."""
    if asyncio._get_running_loop() is not None:
        raise NotAllowedHere(f"{what} runs event loops of its own: call it from a plain function, not from async code")
