"""Holder mutants: planted bugs of who holds, claims, releases and drives a run in one process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from buoy.core.diagnosis.facts import Facts
from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.state import State
from buoy.core.remedy.plan import RecoveryPlan
from buoy.engine.client.client import Client
from buoy.engine.process import intake as intake_module
from buoy.engine.process.inboxes import InboxLoop
from buoy.engine.process.isolation import IsolationSlot, Waiting
from buoy.engine.process.release_queue import ReleaseQueue
from buoy.engine.process.runner import Runner
from buoy.engine.run.ledger import Ledger
from buoy.host import lock_files
from buoy.ports.records import Committed, Outcome, RunRecord, Task, Wants
from buoy.ports.store import Store
from buoy.recovery import remedies
from buoy.stores.objects.runners.registry import Runners
from buoy.stores.objects.runs import Runs
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class KeepRelease(Mutant):
    """A release that is under way is tried again after the run was claimed again."""

    name = "release-not-forgotten"
    rules = ("what is driven is not given back",)
    enough = 60
    test = "tests/engine/test_releases.py"

    def install(self, world: World) -> None:
        async def forget(releases: ReleaseQueue, run_id: RunId) -> bool:
            return False

        self.patch(ReleaseQueue, "forget", forget)


class EffectsAfterClose(Mutant):
    """A commit that comes back after its execution was dropped starts what it was for."""

    name = "ledger-effects-after-close"
    rules = ("who was declared gone starts nothing", "executed twice at once")
    enough = 60
    test = "tests/engine/test_detached.py::test_a_commit_that_comes_back_after_the_run_was_dropped_starts_nothing"

    def install(self, world: World) -> None:
        def outcome(ledger: Ledger, outcome: Outcome) -> None:
            if ledger.closed and isinstance(outcome, Committed):
                for effect in ledger._in_flight or ():
                    effect()
            real(ledger, outcome)

        real = self.patch(Ledger, "_outcome", outcome)


class NeverLookAgain(Mutant):
    """A runner never looks what it holds: neither after something unclear nor from time to time."""

    name = "never-look-again"
    rules = ("runs end or wait for something real",)
    enough = 60

    def install(self, world: World) -> None:
        async def forgotten(runner: Runner, isolation: IsolationSlot) -> AsyncIterator[tuple[Task, int]]:
            found: tuple[tuple[Task, int], ...] = ()
            for each in found:
                yield each

        self.patch(intake_module, "forgotten", forgotten)


class SeenFirst(Mutant):
    """Messages are called seen before the run has taken them."""

    name = "seen-before-take"
    rules = ("runs end or wait for something real",)
    enough = 150

    def install(self, world: World) -> None:
        async def read_inboxes(inboxes: InboxLoop) -> None:
            runner = inboxes._runner
            for run_id in await runner.store.unread_runs(runner.id):
                execution = runner.executions.get(run_id)
                if execution is None or execution.detached or execution.opening:
                    continue
                messages = await runner.store.inbox(run_id, after=execution.mailbox.seen)
                last = max([execution.mailbox.seen, *(each.number for each in messages)])
                await runner.store.mark_read(run_id, runner.id, last)
                execution.take(messages)

        self.patch(InboxLoop, "read", read_inboxes)


class NoClaimFirst(Mutant):
    """A run of the dead is claimed only with what its code does next."""

    name = "no-claim-first"
    rules = ("what kills is set apart",)
    enough = 150

    def install(self, world: World) -> None:
        async def claim_first(
            runner: Runner, task: Task, log: Sequence[e.Event], state: State, claim: e.Claimed
        ) -> list[e.Event] | None:
            return list(log)

        self.patch(intake_module, "claim_first", claim_first)


class NotAlone(Mutant):
    """A run that keeps ending its processes is driven beside others."""

    name = "suspects-not-alone"
    rules = ("a suspect is driven alone",)
    enough = 150

    def install(self, world: World) -> None:
        def next_task(solo: IsolationSlot) -> Waiting | None:
            return solo._waiting.popleft() if solo._waiting else None

        self.patch(IsolationSlot, "next", next_task)


class RemedyUnderOwner(Mutant):
    """A recovery that was planned before the run had an owner is done all the same."""

    name = "remedy-under-owner"
    rules = ("executed twice at once", "a task has one holder")
    enough = 60
    test = "tests/recovery/test_recover.py::test_a_plan_made_before_the_run_was_taken_changes_nothing_under_its_owner"

    def install(self, world: World) -> None:
        async def apply(client: Client, record: RunRecord, facts: Facts, plan: RecoveryPlan, actor: str) -> bool:
            return bool(await real(client, record, msgspec.structs.replace(facts, holder=None), plan, actor))

        real = self.patch(remedies, "apply", apply)


class KnownForEver(Mutant):
    """A writer that slept over a purge trusts what it knew of the run before."""

    name = "known-for-ever"
    rules = ("a sound log", "only what ended is purged")
    enough = 60
    stores = ("objects",)
    test = "tests/stores/test_objects_archive.py::test_who_slept_for_long_writes_nothing_into_the_gaps_of_a_purged_run"

    def install(self, world: World) -> None:
        self.patch(Runs, "known_s", lambda runs, run_id: 0.0)


class LockAnyInode(Mutant):
    """A runner locks a file that another file has replaced under the same name."""

    name = "lock-any-inode"
    # No simulated process has a lock file, so one seed is as good as many.
    enough = 1
    test = "tests/host/test_lock_files.py::test_a_lock_on_a_file_that_was_replaced_meanwhile_counts_for_nothing"

    def install(self, world: World) -> None:
        def locked(path: Path, kind: int, flags: int) -> int:
            descriptor = os.open(path, os.O_CLOEXEC | os.O_NONBLOCK | flags, 0o600)
            lock_files._lock(descriptor, kind)
            return descriptor

        self.patch(lock_files, "_locked", locked)


class DeadMayClaim(Mutant):
    """A runner that was declared gone is given tasks, until it notices."""

    name = "dead-may-claim"
    rules = ("who is gone gets no task",)
    stores = ("objects",)
    enough = 60

    def __init__(self) -> None:
        super().__init__()
        self._asking: set[RunnerId] = set()

    async def claim_tasks(self, store: Store, runner: RunnerId, wants: Wants, limit: int) -> list[Task]:
        self._asking.add(runner)
        try:
            return await store.claim_tasks(runner, wants, limit)
        finally:
            self._asking.discard(runner)

    def install(self, world: World) -> None:
        async def why(runners: Runners, runner: RunnerId) -> str | None:
            return None if runner in self._asking else await real(runners, runner)

        real = self.patch(Runners, "why_not_living", why)


HOLDER_MUTANTS: tuple[type[Mutant], ...] = (
    KeepRelease,
    EffectsAfterClose,
    NeverLookAgain,
    SeenFirst,
    NoClaimFirst,
    NotAlone,
    RemedyUnderOwner,
    KnownForEver,
    LockAnyInode,
    DeadMayClaim,
)
