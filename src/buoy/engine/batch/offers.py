"""Offers: turns ready jobs into lots: their group, their size, their number, and what their runner needs to know.

Invariant: a lot's input follows from the spec and the log; its size also from what was measured since this owner began,
and is recorded with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from buoy.core.batch.lots import JobTimes, LotBuilder, LotJob, StopJobs, cut, lot_leaf, lot_size
from buoy.core.batch.resources import ONE_CPU, job_queue
from buoy.core.ids import LeafId, leaf_id
from buoy.core.limits import JOB_LOG_BYTES_MAX, JOBS_COMMIT_MAX, JOBS_GUESSED_MAX, JOBS_GUESSED_S
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.spec.model import DIRECTORY, Resources, SpecStep
from buoy.core.spec.plan import SpecPlan
from buoy.engine.batch.lot import LOT_VERSION
from buoy.engine.batch.protocol import JobExecution, check_sent, jobs_message
from buoy.engine.services.timers import Timer
from buoy.engine.spec.ready_set import Frontier
from buoy.engine.spec.runtime import command_args
from buoy.errors import BadInput, NotJson, TooLarge

# Called for each new lot, with the event that starts it, its number, and the nodes of its jobs.
OnLot = Callable[[e.ChildStarted, int, Sequence[int]], None]


class Offers:
    """The jobs of one run, on their way to runners."""

    def __init__(self, execution: JobExecution, plan: SpecPlan, frontier: Frontier) -> None:
        self._execution = execution
        self._plan = plan
        self._frontier = frontier
        self._measured: dict[Resources, JobTimes] = {}
        # How many jobs the last lot was meant for.
        self.size = 1
        # Whether that was only a guess, or would be.
        self._guessed = True
        self._timer: Timer | None = None

    def make(self, nodes: Sequence[int], on_lot: OnLot) -> Iterator[tuple[int, e.ErrorInfo]]:
        """Offers these jobs. Gives back those that cannot even be offered, with the reason."""
        groups: dict[Resources, list[int]] = {}
        for node in nodes:
            groups.setdefault(self.resources(node), []).append(node)
        self._guessed = self._guessed and not groups
        for resources, members in groups.items():
            measured = self._measured.get(resources)
            self._guessed |= measured is None and resources.time_s is None
            self.size = lot_size(resources, None if measured is None else measured.mean_s)
            for part in cut(members, self.size):
                yield from self._lot(resources, part, on_lot)

    def is_job(self, node: int) -> bool:
        """Whether a node of the plan is a command for runners."""
        step = self._plan.steps[node].step
        return step.run is not None and not step.modules

    def stop(self, lot: int, body: StopJobs, number: int) -> None:
        """Asks a lot to stop some of its jobs. `number`: of the message that wants it."""
        execution = self._execution
        child = execution.state.child_id(lot_leaf(lot))
        message = jobs_message(child, execution.run_id, f"stop:{number}", codec.encode(body, "a request"))
        execution.after_commit(lambda: execution.host.outbox.send(message, partial(execution.turn, check_sent)))

    @property
    def wave(self) -> int:
        """How many jobs one commit offers."""
        return JOBS_GUESSED_MAX if self._guessed else JOBS_COMMIT_MAX

    def later(self, offer: Callable[[], None]) -> None:
        """Offers more after this commit, or a moment later if the size of the last lots was only a guess."""
        execution = self._execution
        if not self._guessed:
            execution.after_commit(offer)
            return
        # This process may give the run away before the time is up.
        execution.has_undelivered = True
        host, due = execution.host, partial(execution.turn, offer)
        self._timer = host.timers.set(host.clock.now() + JOBS_GUESSED_S, due)

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def resources(self, node: int) -> Resources:
        """What a job needs: as its spec says, or as it was changed since."""
        needed = self._plan.steps[node].step.resources or ONE_CPU
        changed = self._execution.state.limits.get(self._leaf(node))
        if changed is None:
            return needed
        return msgspec.structs.replace(
            needed,
            memory_bytes=needed.memory_bytes if changed.memory_bytes is None else changed.memory_bytes,
            time_s=needed.time_s if changed.time_s is None else changed.time_s,
        )

    def measure(self, node: int, result: Any) -> None:
        """A job has shown how long it takes."""
        seconds = result.get("duration_s") if isinstance(result, dict) else None
        if isinstance(seconds, int | float):
            self._measured.setdefault(self.resources(node), JobTimes()).add(float(seconds))

    def _lot(self, resources: Resources, nodes: Sequence[int], on_lot: OnLot) -> Iterator[tuple[int, e.ErrorInfo]]:
        execution = self._execution
        state, number = execution.state, execution.state.lots + 1
        directory = str(self._plan.steps[nodes[0]].bound[DIRECTORY])
        builder, good = LotBuilder(execution.run_id, resources, directory), []
        for node in nodes:
            try:
                builder.add(self._job(node, builder))
                good.append(node)
            except (BadInput, NotJson, TooLarge) as error:
                self._offer(node, 0)
                yield node, e.ErrorInfo(type=type(error).__name__, message=str(error), kind="misconfiguration")
        if not good:
            return
        started = e.ChildStarted(
            leaf=lot_leaf(number),
            child=state.child_id(lot_leaf(number)),
            workflow=e.LOT_WORKFLOW,
            input=codec.encode(builder.build(), "the jobs of a lot"),
            version=LOT_VERSION,
            queue=job_queue(execution.run_id, resources),
        )
        execution.record(started)
        for node in good:
            self._offer(node, number)
        on_lot(started, number, good)

    def _offer(self, node: int, lot: int) -> None:
        leaf = self._leaf(node)
        attempt = self._attempt(leaf)
        self._execution.record(e.JobOffered(leaf, self._plan.steps[node].id, lot, attempt))

    def _attempt(self, leaf: LeafId) -> int:
        """The next one after a failure that was reset, else the same: a lot that was lost costs no attempt."""
        known = self._execution.state.leaves.get(leaf)
        if known is None:
            return 1
        return known.attempt + 1 if known.phase == "reset" else known.attempt

    def _job(self, node: int, builder: LotBuilder) -> LotJob:
        planned = self._plan.steps[node]
        step: SpecStep = planned.step
        args = command_args(planned, step, self._frontier.scope(node), None)
        leaf, before = self._leaf(node), step.before_retry
        changed = self._execution.state.limits.get(leaf)
        return LotJob(
            leaf=leaf,
            command=builder.command(str(args["command"])),
            attempt=self._attempt(leaf),
            epoch=self._execution.state.epochs.get(leaf, 0),
            variables=args["variables"],  # type: ignore[arg-type]
            inputs=tuple(args["inputs"]),  # type: ignore[arg-type]
            outputs=tuple(args["outputs"]),  # type: ignore[arg-type]
            retries=step.retries,
            backoff_s=step.backoff_s,
            retry_on=step.retry_on,
            before_retry=None if before is None else builder.command(before),
            # A time limit that was raised since replaces both limits of the spec.
            timeout_s=step.timeout_s if changed is None or changed.time_s is None else None,
            grace_s=float(args["grace_s"]),  # type: ignore[arg-type]
            log_max_bytes=step.log_max_bytes or JOB_LOG_BYTES_MAX,
        )

    def _leaf(self, node: int) -> LeafId:
        return leaf_id("", self._plan.steps[node].id, 1)
