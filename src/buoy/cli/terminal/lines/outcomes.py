"""Outcomes: how a run ended, as result, error and exit code, for `buoy run` and `buoy result`."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit
from buoy.core.explain.phrases import status_text
from buoy.core.log.lifecycle import Status
from buoy.operations.control.outcome import RunOutcome

_CODES = {Status.COMPLETED: Exit.OK, Status.FAILED: Exit.FAILED, Status.CANCELLED: Exit.CANCELLED}


def print_outcome(found: RunOutcome, *, as_json: bool) -> Exit:
    """Prints the result to standard output, or the reason why there is none to standard error."""
    code = _CODES.get(found.status, Exit.NOT_ENDED)
    if as_json:
        print_json(found)
        return code
    reason = "" if found.error is None else f": {found.error.message}"
    match code:
        case Exit.OK:
            click.echo(bytes(found.result or b"null").decode())
        case Exit.FAILED:
            kind = "unknown" if found.error is None else found.error.type
            say(f"error: run {found.run_id} failed: {kind}{reason}", err=True)
        case Exit.CANCELLED:
            say(f"error: run {found.run_id} was cancelled{reason}", err=True)
        case _:
            say(f"run {found.run_id} has not ended: it is {status_text(found.status)}", err=True)
    return code
