"""Run log: the events of a run and the gaps among them, as they are or as they come; and the run as a graph."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import msgspec

from buoy.core.diagnosis.document_drift import log_gone_text
from buoy.core.graph.folding import fold_alike
from buoy.core.graph.view import GraphView, graph_view
from buoy.core.ids import check_run_id
from buoy.core.limits import EVENTS_PAGE
from buoy.core.log.events import Event
from buoy.core.times import run_time
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.errors import BadInput, CorruptLog


class LogPage(msgspec.Struct, frozen=True):
    """Events in order. `missing`: the first and last number of each gap."""

    run_id: str
    events: list[Event]
    missing: list[tuple[int, int]]


async def log_page(client: Client, run_id: str, after: int = 0, limit: int = EVENTS_PAGE) -> LogPage:
    """The events after that number. The document, read before, shows how many there are."""
    if after < 0 or not 1 <= limit <= EVENTS_PAGE:
        raise BadInput(f"after must be 0 or more, and limit from 1 to {EVENTS_PAGE}")
    record = await client.record(run_id)
    found = await client.store.events(check_run_id(run_id), after, limit)
    numbers = [after, *(event.seq for event in found)]
    if len(found) < limit and record.envelope.orchestrator_task_id is not None:
        numbers.append(max(numbers[-1], record.document.head_seq) + 1)
    missing = [(one + 1, other - 1) for one, other in pairwise(numbers) if other - one > 1]
    return LogPage(run_id, found, missing)


async def follow_log(client: Client, run_id: str, after: int = 0) -> AsyncIterator[Event]:
    """The events after that number and those to come, until the run ends."""
    record = await client.record(run_id)
    driven = record.envelope.orchestrator_task_id is not None
    if driven and not await client.store.events(record.document.run_id, 0, 1):
        raise CorruptLog(log_gone_text(record.document.head_seq))
    async for event in client.follow(run_id, after):
        yield event


async def run_graph(client: Client, run_id: str, *, every: bool = False) -> GraphView:
    """The run as a graph. `every`: also concurrent parts that did the same, each by itself."""
    record = await client.record(run_id)
    checked = record.document.run_id
    log = await read_log(client.store, checked)
    now = run_time(await client.store.now(), taken_at=record.updated_at, dated_at=record.document.updated_at)
    return graph_view(checked, log, now=now, fold_nodes=None if every else fold_alike)
