"""Tend: keeps a batch run on Slurm going, one look after the other.

Invariants: each look asks the scheduler once, and finds orphans first. A scheduler or a store that does not answer
changes nothing: the next look tries again. Failed jobs are reset at most as often as the caller allows. The log
has that count, so a watch that is started again continues it. A run that ended keeps no allocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from buoy.core.batch.allocations import AllocationStatus
from buoy.core.batch.orphans import ClusterOrphan
from buoy.core.batch.regenerate import wanted_intents
from buoy.core.batch.resources import Correction
from buoy.core.batch.sizing import Wishes
from buoy.core.batch.slurm_text import Cause, Phase
from buoy.core.ids import RunId
from buoy.core.log.cluster_changes import ActionEnded, AllocationsAsked
from buoy.core.log.document import Document
from buoy.core.log.events import ResetBy
from buoy.core.log.lifecycle import Status
from buoy.errors import Unavailable
from buoy.operations.batch.recover import JobRecovery, plan_recovery, send_resets
from buoy.operations.slurm.actions import fire_actions
from buoy.operations.slurm.allocate import Allocated, allocate
from buoy.operations.slurm.allocations import cancel_surplus, end_allocations
from buoy.operations.slurm.cluster_log import ClusterView, read_view
from buoy.operations.slurm.pending_jobs import jobs_of, views_of
from buoy.operations.slurm.recover import is_on_slurm, recover_jobs
from buoy.operations.slurm.submission import INTENT_S, Site, SubmittedAllocation, submit_left, submit_planned
from buoy.operations.slurm.sync import sync_status

# How often, and how far apart, the allocations of a run that ended are looked at until Slurm has ended them.
_END_LOOKS = 10
# After so many quick checks in a row comes a full look: another command may have changed something by message alone.
_QUICK_LOOKS = 5
# A batch script that fails before its runner starts fails again: a module that is not there, a disk that is full.
_FALSE_STARTS_MAX = 5
# After so many losses of one job with its allocation, its resets count as recoveries.
_LOSSES_MAX = 10
_PHASES = {AllocationStatus.PENDING: Phase.WAITING, AllocationStatus.ACTIVE: Phase.ACTIVE}
_END_LOOK_S = 2.0
# How long runners of a run that ended have to stop their jobs and leave; jobs may have 30 s for that.
END_S = 45.0


class _LastLook(msgspec.Struct, frozen=True):
    """What the last full look left: the end of the log, and phase and restarts of each allocation."""

    head_seq: int
    standing: dict[str, tuple[Phase, int]]
    quick: int = 0


class TendOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done. `recoveries_max` 0: no failed job is reset, only allocations are asked for.

    `single_look`: no other look follows, so this one asks twice about what the scheduler does not know.
    """

    # From what was asked of the run's allocations so far: another command may change that while this one looks.
    wishes: Callable[[AllocationsAsked], Wishes]
    rule: Correction
    recoveries_max: int = 3
    retry_unknown: bool = False
    single_look: bool = False


class Tended(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One look: what was found and done. `unknown`: why nothing is known. `over`: no further look helps."""

    orphans: tuple[ClusterOrphan, ...] = ()
    reset: tuple[str, ...] = ()
    submitted: tuple[SubmittedAllocation, ...] = ()
    cancelled: tuple[str, ...] = ()
    # Actions whose commands ran, and those that were started before and whose end is not recorded.
    actions: tuple[ActionEnded, ...] = ()
    unfinished: tuple[str, ...] = ()
    # Why nothing more is asked for: a person has to look first.
    given_up: str | None = None
    unknown: str | None = None
    over: bool = False


async def check_scheduler(site: Site, run_id: RunId) -> None:
    """Refuses to look after a run that has nothing at a scheduler that does not answer: no later look would help."""
    if await is_on_slurm(site.client, run_id):
        return
    try:
        await site.batch.partitions()
    except Unavailable as error:
        raise Unavailable(
            f"run {run_id} has no allocations, and Slurm does not answer: {error}; watch it without --recover and "
            f"--auto-schedule, and reset failed jobs by `buoy recover {run_id}`"
        ) from error


class Tender:
    """Looks after one run."""

    def __init__(self, site: Site, run_id: RunId, options: TendOptions) -> None:
        self._site = site
        self._run_id = run_id
        self._options = options
        self._missed: tuple[str, ...] = ()
        self._reported_unfinished = False
        self._last: _LastLook | None = None
        # Intents that Slurm does not know: the change that planned each, and when this process saw it first.
        self._intents: dict[str, tuple[int, float]] = {}
        # The jobs that this look has reset so far: they are, also if the rest of the look gets no answer.
        self._was_reset: list[str] = []

    async def look(self) -> Tended:
        self._was_reset = []
        try:
            return await self._look()
        except Unavailable as error:
            return Tended(unknown=str(error), reset=tuple(self._was_reset))

    async def _look(self) -> Tended:
        site, run_id = self._site, self._run_id
        document = (await site.client.record(run_id)).document
        if document.ended:
            return await self._ended()
        if await self._is_unchanged(document):
            return Tended()
        tended = await self._full(document)
        await self._remember(document, tended)
        return tended

    async def _is_unchanged(self, document: Document) -> bool:
        """The quick check: the run's log and the queue are as the last full look left them."""
        last = self._last
        if last is None or last.head_seq != document.head_seq or last.quick >= _QUICK_LOOKS:
            return False
        self._last = msgspec.structs.replace(last, quick=last.quick + 1)
        answer = await self._site.batch.states(last.standing, 0.0, accounts=False)
        found = {name: (jobs[0].phase, jobs[0].restart or 0) for name, jobs in answer.jobs.items()}
        return found == last.standing

    async def _remember(self, document: Document, tended: Tended) -> None:
        """Only a look that found nothing to do is worth remembering."""
        self._last = None
        if tended != Tended():
            return
        live = (await read_view(self._site.client, self._run_id)).cluster.live
        if live and not self._missed and all(each.job_id for each in live):
            self._last = _LastLook(
                document.head_seq, {each.name: (_PHASES[each.status], each.restart) for each in live}
            )

    async def _full(self, document: Document) -> Tended:
        site, run_id = self._site, self._run_id
        missed = None if self._options.single_look else self._missed
        synced, self._missed = await sync_status(site.client, site.batch, run_id, missed=missed)
        orphans = synced.orphans
        cancelled = await cancel_surplus(site.client, site.batch, run_id) if synced.live else ()
        lost = await self._return_lost()
        if document.status is Status.PAUSED:
            paused = await self._paused(orphans)
            return msgspec.structs.replace(paused, reset=(*lost, *paused.reset), cancelled=cancelled)
        unfinished = await self._unfinished()
        reset = (*lost, *await self._raise_limits())
        fired = await fire_actions(site, run_id, await self._wishes())
        view = await read_view(site.client, run_id)
        tired, told = self._false_start(view), bool(self._intents)
        submitted = (*fired.submitted, *(await self._submit_left(view) if tired is None else ()))
        if tired is None and (synced.stuck or reset) and not submitted and not self._intents:
            submitted = (await self._regenerate()).submitted
        if told and not submitted:
            # A plan has to be absent at two looks before it is submitted. The first of them told why jobs wait.
            orphans = tuple(each for each in orphans if each.code != "J7")
        given_up = None if submitted or synced.live > len(view.cluster.intents) else tired
        return Tended(
            over=given_up is not None,
            given_up=given_up,
            orphans=orphans,
            reset=reset,
            submitted=submitted,
            cancelled=cancelled,
            actions=fired.ended,
            unfinished=unfinished,
        )  # fmt: skip

    async def _submit_left(self, view: ClusterView) -> list[SubmittedAllocation]:
        """Submits what was planned and is in no queue: its process was killed before sbatch, or left it for later.

        An intent may be submitted right now. So it has to be absent at two looks, and an only look waits in between.
        """
        site, now = self._site, self._site.client.clock.monotonic()
        wanted = {each.name: view.cluster.planned[each.name] for each in wanted_intents(jobs_of(view), view.cluster)}
        if self._options.single_look:
            return await submit_planned(site, self._run_id, ()) if wanted else []
        known = self._intents
        self._intents = {
            name: known[name] if name in known and known[name][0] == number else (number, now)
            for name, number in wanted.items()
        }
        left = {name: number for name, (number, since) in self._intents.items() if now - since >= INTENT_S}
        return await submit_left(site, self._run_id, left) if left else []

    def _false_start(self, view: ClusterView) -> str | None:
        """Why no further allocation is asked for: those before it failed before a runner started."""
        count = view.cluster.false_starts
        if count < _FALSE_STARTS_MAX:
            return None
        return (
            f"allocations failed {count} times before a runner started; see their output in "
            f"{self._site.place.output_folder}"
        )

    async def _ended(self) -> Tended:
        """What waits for the end of the run is done, nothing of it stays at the cluster, and the ends are recorded."""
        site, run_id = self._site, self._run_id
        unfinished = await self._unfinished()
        fired = await fire_actions(site, run_id, await self._wishes())
        cancelled = await end_allocations(site.client, site.batch, run_id, END_S)
        for look in range(_END_LOOKS):
            synced, self._missed = await sync_status(site.client, site.batch, run_id, missed=self._missed)
            if not synced.live:
                break
            if look + 1 < _END_LOOKS:
                await asyncio.sleep(_END_LOOK_S)
        return Tended(cancelled=cancelled, actions=fired.ended, unfinished=unfinished, over=True)

    async def _unfinished(self) -> tuple[str, ...]:
        """Reports once: commands that another process claimed, and whose end is not recorded."""
        if self._reported_unfinished:
            return ()
        self._reported_unfinished = True
        cluster = (await read_view(self._site.client, self._run_id)).cluster
        return tuple(each.action for each in cluster.actions.values() if each.unfinished)

    async def _paused(self, orphans: tuple[ClusterOrphan, ...]) -> Tended:
        """Failed jobs keep all others waiting: they are reset, with higher limits, and allocations are asked for.

        What was read first may be over: a runner that takes the run ends its pause and reads the reset at that moment.
        """
        view, options = await read_view(self._site.client, self._run_id), self._options
        pause = view.batch.state.pause
        if pause is None:
            return Tended(orphans=orphans)
        if view.resets:
            # The next runner reads them.
            live = any(each.job_id is not None for each in view.cluster.live)
            submitted = () if live else (await self._regenerate()).submitted
            return Tended(orphans=orphans, submitted=submitted)
        plan = plan_recovery(view.batch, options.rule, retry_unknown=options.retry_unknown, cluster=view.cluster)
        if pause.reason != "jobs" or view.recoveries >= options.recoveries_max:
            return Tended(orphans=orphans, over=True)
        if not any(each.reset for each in plan):
            # Slurm has not reported yet why an allocation ended, and with it perhaps the job.
            ending = any(each.status is AllocationStatus.ACTIVE for each in view.cluster.live)
            return Tended(orphans=orphans, over=not ending)
        reset = await self._reset()
        allocated = await self._regenerate()
        return Tended(orphans=orphans, reset=reset, submitted=allocated.submitted)

    async def _reset(self) -> tuple[str, ...]:
        options = self._options
        found = await recover_jobs(
            self._site.client, self._run_id, options.rule, retry_unknown=options.retry_unknown, recovery="watch"
        )
        jobs = tuple(each.job for each in found.jobs if each.reset and not each.free)
        self._was_reset += jobs
        return jobs

    async def _raise_limits(self) -> tuple[str, ...]:
        """Jobs that ran out of memory or time with their allocation would only be lost again."""
        view, rule = await read_view(self._site.client, self._run_id), self._options.rule
        if view.recoveries >= self._options.recoveries_max:
            return ()
        plan = plan_recovery(view.batch, rule, retry_unknown=False, cluster=view.cluster, views=views_of(view))
        # The signal of Slurm may reach a job before its runner stops it. Then it failed, by the end of its allocation.
        ends = (Cause.TIMEOUT, Cause.OOM)
        with_it = [each for each in plan if not each.evidence.type or each.evidence.allocation_cause in ends]
        short = [each for each in with_it if each.reset and not each.free and each.leaf not in view.resets]
        return await self._send(short, "watch")

    async def _return_lost(self) -> tuple[str, ...]:
        """Jobs that failed by the signal that ended their allocation run again at once, and cost no recovery.

        A job that is lost again and again may itself be the cause: it takes its node down, or cancels its allocation.
        """
        if not self._options.recoveries_max:
            return ()
        view, rule = await read_view(self._site.client, self._run_id), self._options.rule
        plan = plan_recovery(view.batch, rule, retry_unknown=False, cluster=view.cluster)
        losses = view.losses
        lost = [each for each in plan if each.is_loss and losses[each.leaf] < _LOSSES_MAX]
        return await self._send([each for each in lost if each.leaf not in view.resets], "loss")

    async def _send(self, resets: Sequence[JobRecovery], recovery: ResetBy) -> tuple[str, ...]:
        if resets:
            await send_resets(self._site.client, self._run_id, resets, recovery=recovery)
        jobs = tuple(each.job for each in resets)
        self._was_reset += jobs
        return jobs

    async def _regenerate(self) -> Allocated:
        return await allocate(self._site, self._run_id, await self._wishes(), recovery=True, submit=True)

    async def _wishes(self) -> Wishes:
        return self._options.wishes((await read_view(self._site.client, self._run_id)).cluster.asked)
