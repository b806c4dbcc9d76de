"""The body of a job: its place, its command under its limits, and what is done before a retry.

Invariants: how a job ended is a fact (oom, time limit, signal, exit code), never a guess from a text. A job that met a
limit is not tried again as it is. The command before a retry ends before the failure is recorded, so no runner can take
the next attempt earlier.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from buoy.core.batch.lots import Lot, LotJob, SpooledEnd
from buoy.core.batch.resources import group_name
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.engine.authoring.arguments import Arguments
from buoy.engine.authoring.context import step_context
from buoy.engine.authoring.declaration import Retry
from buoy.engine.services.room import JobPlace
from buoy.engine.spec.commands import Facts, identity, need_files
from buoy.engine.spec.runtime import JobKit, Work
from buoy.errors import CommandFailed
from buoy.ports.host import GUARD_LOST, Command


class NotRetried(CommandFailed):
    """A failure after which another attempt of the same kind makes no sense."""


def job_work(lot: Lot, job: LotJob, kit: JobKit, *, again: bool = False) -> Work:
    """The job as the engine sees it: a step with a body. `again`: an earlier runner has started it."""
    retry = Retry(job.retries + job.attempt - 1, job.backoff_s, never_on=(NotRetried,))
    run = JobBody(lot, job, kit, again=again).run
    return Work(job.leaf, run, _NO_ARGUMENTS, is_async=True, retry=retry, timeout_s=None)


async def _shape() -> msgspec.Raw:
    """What the body of every job looks like from outside."""
    raise NotImplementedError


# Reading the hints of a function takes longer than the rest of a short job.
_NO_ARGUMENTS = Arguments(_shape, "a job")


def shares_place(lot: Lot, job: LotJob) -> bool:
    """Whether a job may queue for the place of another. A limit would count the wait, and devices have names."""
    needed = lot.resources
    return job.timeout_s is None and needed.time_s is None and not needed.gpus and needed.nodes == 1


class JobBody:
    """One job of a lot."""

    def __init__(self, lot: Lot, job: LotJob, kit: JobKit, *, again: bool) -> None:
        self._lot = lot
        self._job = job
        self._key = lot.key(job)
        self._again = again
        self._commander = kit.commander
        self._room = kit.room
        self._spool = kit.spool
        limits = [each for each in (job.timeout_s, lot.resources.time_s) if each is not None]
        self._limit_s = min(limits, default=None)

    async def run(self) -> msgspec.Raw:
        """Runs the job's command. The arguments of a job are in the input of its lot.

        The result is JSON already: the spool, the log and the message to the owner share one text.
        """
        attempt, shared = step_context("a job").attempt, shares_place(self._lot, self._job)
        place = await self._room.enter(self._key, self._lot.resources, shared=shared)
        try:
            return await self._attempt(attempt, place)
        finally:
            self._room.release(self._key)

    async def _attempt(self, attempt: int, place: JobPlace) -> msgspec.Raw:
        if self._again and (kept := await self._kept(attempt)) is not None:
            return kept
        if self._job.inputs:
            missing = await self._commander.missing(self._lot.directory, self._job.inputs)
            need_files(missing, self._lot.directory)
        try:
            result = await self._command(attempt, place)
        except CommandFailed as error:
            if self._room.allocation:
                error.facts["allocation"] = self._room.allocation
            judged = await self._judged(error, attempt, place)
            self._keep_failure(judged, attempt)
            raise judged from error
        self._room.short.measure(self._lot.resources, result["duration_s"])
        stored = codec.encode(result, "the result of a job")
        self._keep(SpooledEnd(self._key, stored), attempt)
        return stored

    async def _kept(self, attempt: int) -> msgspec.Raw | None:
        """The result of this attempt, if its runner died before the store had it. A kept failure is raised."""
        data = await self._spool.read(self._lot.run, self._job.leaf, attempt)
        end: SpooledEnd | None = None if data is None else codec.decode(data, SpooledEnd, "the kept end of a job")
        if end is None or end.key != self._key:
            return None
        if end.error is not None:
            make = CommandFailed if end.again else NotRetried
            raise make(end.error.message, type=end.error.type, kind=end.error.kind, facts=end.error.facts)
        return end.result

    def _keep_failure(self, error: CommandFailed, attempt: int) -> None:
        if error.type == GUARD_LOST:
            return  # nothing is known about the job itself
        info = e.ErrorInfo(type=error.type, message=str(error), kind=error.kind, facts=error.facts)
        again = not isinstance(error, NotRetried)
        self._keep(SpooledEnd(self._key, error=info, again=again), attempt)

    def _keep(self, end: SpooledEnd, attempt: int) -> None:
        self._spool.keep(self._lot.run, self._job.leaf, attempt, msgspec.json.encode(end))

    async def _command(self, attempt: int, place: JobPlace) -> dict[str, Any]:
        job = self._job
        order = self._order(self._lot.commands[job.command], attempt, place)
        known: Facts = {"host": self._room.host} if self._room.host else {}
        if self._limit_s is None:
            return await self._commander.execute(order, job.outputs, known)
        limit = asyncio.timeout(self._limit_s)
        try:
            async with limit:
                return await self._commander.execute(order, job.outputs, known)
        except TimeoutError as error:
            if not limit.expired():
                raise
            text = f"stopped after its limit of {self._limit_s:g} s; give it more time in resources or timeout"
            facts: Facts = {**known, "limit_s": self._limit_s, "duration_s": self._limit_s, "cause": "timeout"}
            raise NotRetried(text, type="TimeLimit", kind="resource", facts=facts) from error

    def _order(self, command: str, attempt: int, place: JobPlace) -> Command:
        lot, job = self._lot, self._job
        own = identity(lot.run, job.leaf, attempt, self._key)
        if self._room.capacity.gpus:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(place.gpus)
        if place.nodes:
            own["BUOY_NODELIST"] = ",".join((self._room.node, *place.nodes))
        return Command(
            run_id=lot.run,
            leaf=job.leaf,
            attempt=attempt,
            command=command,
            directory=lot.directory,
            variables={**job.variables, **own},
            grace_s=job.grace_s,
            memory_max_bytes=lot.resources.memory_bytes or 0,
            log_max_bytes=job.log_max_bytes,
            again=self._again,
            lane=group_name(lot.resources) if place.shared else "",
            places=self._room.short.places(lot.resources),
        )

    async def _judged(self, error: CommandFailed, attempt: int, place: JobPlace) -> CommandFailed:
        """The failure, and whether another attempt makes sense; before that attempt a command may have to run."""
        job = self._job
        code = error.facts.get("exit_code")
        wanted = not job.retry_on or code in job.retry_on
        if isinstance(error, NotRetried) or error.type == "OutOfMemory" or not wanted:
            return NotRetried(str(error), type=error.type, kind=error.kind, facts=error.facts)
        if job.before_retry is not None and attempt < job.attempt + job.retries:
            try:
                await self._commander.execute(self._order(self._lot.commands[job.before_retry], attempt, place))
            except CommandFailed as worse:
                text = f"{error}\nand the command before its retry failed: {worse}"
                return NotRetried(text, type=error.type, kind=error.kind, facts=error.facts)
        return error
