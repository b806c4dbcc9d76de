"""Outcome: reads how a run ended, or waits for its end.

Invariant: the outcome is read from the log, which is the truth. A run that continued as a new one has the outcome of
the last of them.
"""

from __future__ import annotations

import asyncio

import msgspec

from buoy.core.ids import RunId, check_run_id
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log

_LOOK_S = 1.0


class RunOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Status of a run, with its result if it completed, or its error."""

    run_id: str
    workflow: str
    status: Status
    result: msgspec.Raw | None = None
    error: e.ErrorInfo | None = None


async def outcome(client: Client, run_id: str) -> RunOutcome:
    """The outcome so far."""
    await client.record(run_id)
    checked = await last_of_chain(client, run_id)
    log = await read_log(client.store, checked)
    state = fold(checked, log)
    summary = document(state)
    ending = log[state.ending_seq - 1].body if summary.ended else None
    result = ending.result if isinstance(ending, e.WorkflowCompleted) else None
    return RunOutcome(checked, summary.workflow, summary.status, result, summary.error)


async def wait_for_outcome(client: Client, run_id: str, timeout_s: float | None = None) -> RunOutcome:
    """Waits for the end; after `timeout_s` returns the outcome so far."""
    try:
        async with asyncio.timeout(timeout_s):
            while not (await client.record(await last_of_chain(client, run_id))).document.ended:
                await client.store.wait_for_change(_LOOK_S)
    except TimeoutError:
        pass  # the status says that it has not ended
    return await outcome(client, run_id)


async def successor(client: Client, run_id: str) -> RunId | None:
    """The run that continues this one, once it exists."""
    record = await client.record(run_id)
    if record.document.status is not Status.COMPLETED:
        return None
    last = await client.store.events(record.document.run_id, after=record.document.head_seq - 1)
    ending = last[-1].body if last else None
    named = ending.continued_as if isinstance(ending, e.WorkflowCompleted) else None
    return named if named is not None and await client.store.run(named) is not None else None


async def last_of_chain(client: Client, run_id: str) -> RunId:
    """The run itself, or the last of those that it continued as."""
    current = check_run_id(run_id)
    while (following := await successor(client, current)) is not None:
        current = following
    return current
