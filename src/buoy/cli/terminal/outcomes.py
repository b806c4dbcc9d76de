"""Outcomes: how a run ended, told as result, error and exit code. Shared by `buoy run` and `buoy result`."""

from __future__ import annotations

import click
import msgspec

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit
from buoy.core.explain.phrases import status_text
from buoy.core.ids import RunId, check_run_id
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run stands: its result if it completed, its error if it did not."""

    run_id: str
    workflow: str
    status: Status
    result: msgspec.Raw | None = None
    error: e.ErrorInfo | None = None

    @property
    def code(self) -> Exit:
        match self.status:
            case Status.COMPLETED:
                return Exit.OK
            case Status.FAILED:
                return Exit.FAILED
            case Status.CANCELLED:
                return Exit.CANCELLED
            case _:
                return Exit.NOT_ENDED


async def successor(client: Client, run_id: str) -> RunId | None:
    """The run that goes on where this one left off, once it is there."""
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


async def outcome(client: Client, run_id: str) -> Outcome:
    """Read from the log, which is the truth. A run that continued as a new one has the outcome of the last."""
    await client.record(run_id)
    checked = await last_of_chain(client, run_id)
    log = await read_log(client.store, checked)
    state = fold(checked, log)
    told = document(state)
    ending = log[state.ending_seq - 1].body if told.ended else None
    result = ending.result if isinstance(ending, e.WorkflowCompleted) else None
    return Outcome(checked, told.workflow, told.status, result, told.error)


def tell_outcome(found: Outcome, *, as_json: bool) -> Exit:
    """The result on standard output; what there is instead of one on standard error."""
    if as_json:
        print_json(found)
        return found.code
    reason = "" if found.error is None else f": {found.error.message}"
    match found.code:
        case Exit.OK:
            click.echo(bytes(found.result or b"null").decode())
        case Exit.FAILED:
            kind = "unknown" if found.error is None else found.error.type
            click.echo(f"error: run {found.run_id} failed: {kind}{reason}", err=True)
        case Exit.CANCELLED:
            click.echo(f"error: run {found.run_id} was cancelled{reason}", err=True)
        case _:
            click.echo(f"run {found.run_id} has not ended: it is {status_text(found.status)}", err=True)
    return found.code
