"""Jobs: a batch run as its log has it, with every job, its status, its runner, and how it ended.

Invariant: a lot that cannot be read hides no job: its jobs are shown as offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

import msgspec

from buoy.core.batch.jobs import JobView, LotFacts, job_views, open_lots
from buoy.core.ids import LeafId, RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.log.lineage import is_plain
from buoy.core.log.state import State, fold
from buoy.core.spec.plan import SpecPlan
from buoy.engine.read_log import read_log
from buoy.engine.spec.workflow import stored_workflow
from buoy.errors import CorruptLog, Problem, UnknownRun, WrongState
from buoy.operations.access import StoreAccess
from buoy.ports.records import RunnerRecord
from buoy.recovery.fleet import was_lost

# Lots whose logs are read to tell which of their jobs run.
_LOTS_READ_MAX = 256
_READS_AT_ONCE = 16
# Runners that are gone, among which the last owner of a lot is looked for.
_GONE_READ_MAX = 200


class BatchLog(msgspec.Struct, frozen=True):
    """A batch run as its log and its spec have it."""

    document: Document
    log: list[e.Event]
    state: State
    plan: SpecPlan


async def read_batch(access: StoreAccess, run_id: RunId, known: BatchLog | None = None) -> BatchLog:
    """The log and the plan of a batch run; a refusal for any other run. `known`: what an earlier look has read."""
    record = await access.store.run(run_id)
    if record is None:
        raise UnknownRun(f"no run {run_id!r} in {access.store.name}; `buoy ps --all` lists all runs")
    if record.document.placement != "batch":
        raise WrongState(f"run {run_id} is no batch run; only a run of `buoy submit` has jobs")
    if known is not None and known.state.sees_all:
        more = await read_log(access.store, run_id, known.state.head_seq)
        if is_plain(more):
            known.log.extend(more)
            known.state.apply_all(more)
            return msgspec.structs.replace(known, document=record.document)
    log = await read_log(access.store, run_id)
    state = fold(run_id, log)
    data = await access.store.definition(state.version)
    if data is None or state.created is None:
        raise CorruptLog(f"the definition {state.version} of run {run_id} is gone; start its spec there once more")
    created = state.created
    plan = await asyncio.to_thread(lambda: stored_workflow(data, state.version).plan(created.input))
    return BatchLog(record.document, log, state, plan)


async def views_of(access: StoreAccess, batch: BatchLog) -> list[JobView]:
    """All jobs of a run, as its log and its open lots have them."""
    lots = await read_lots(access, batch.state)
    return job_views(batch.document.run_id, batch.plan, batch.log, lots, batch.state)


async def read_lots(access: StoreAccess, state: State) -> dict[int, LotFacts]:
    """What the open lots say about their jobs."""
    wanted = sorted(open_lots(state).items())[:_LOTS_READ_MAX]
    if not wanted:
        return {}
    gate = asyncio.Semaphore(_READS_AT_ONCE)
    runners = {each.info.id: each for each in await access.store.runners(gone=_GONE_READ_MAX)}
    dead = await _dead(access, runners.values())

    async def read(number: int, child: RunId) -> tuple[int, LotFacts]:
        async with gate:
            try:
                return number, await _lot(access, child, runners, dead)
            except Problem:
                return number, LotFacts()  # its jobs are shown as offered

    return dict(await asyncio.gather(*(read(number, child) for number, child in wanted)))


async def _dead(access: StoreAccess, runners: Iterable[RunnerRecord]) -> frozenset[RunnerId]:
    """The runners that are proven dead and still registered. Those in allocations are found by `sync-status`."""
    outside = [each for each in runners if each.gone_at is None and each.info.allocation is None]
    return frozenset(runner for runner, seen in (await access.liveness.look(outside)).items() if seen.proof is not None)


async def _lot(
    access: StoreAccess, child: RunId, runners: Mapping[RunnerId, RunnerRecord], dead: Collection[RunnerId]
) -> LotFacts:
    record = await access.store.run(child)
    if record is None or record.document.owner is None:
        return LotFacts()
    state = fold(child, await read_log(access.store, child))
    begun: dict[LeafId, float] = {leaf.id: leaf.since for leaf in state.open.values() if leaf.phase == "open"}
    attempts = {leaf.id: leaf.attempt for leaf in state.open.values()}
    holder = None if record.holder is None else runners.get(record.holder)
    last = holder if record.holder is not None else runners.get(RunnerId(state.owner or ""))
    place = None if last is None or last.info.allocation is None else last.info.allocation.name
    host = None if last is None else last.info.host
    if record.holder in dead:
        why = f"runner {record.holder} is dead; the next one runs the job again"
        return LotFacts(host=host, begun=begun, attempts=attempts, lost=why, dead=record.holder)
    return LotFacts(
        holder=record.holder,
        host=host if record.holder is not None or begun else None,
        begun=begun,
        attempts=attempts,
        lost=_lost(last) if begun and record.holder is None else None,
        allocation=place,
    )


def _lost(last: RunnerRecord | None) -> str | None:
    """Why the last owner of a lot is gone. One that stopped by itself was not lost."""
    if last is None or not was_lost(last):
        return None
    if last.info.allocation is not None:
        return last.gone_why or "its allocation ended"
    return f"runner {last.info.id} is gone: {last.gone_why or 'dead'}; the next one runs the job again"
