"""Message lines: the outcome of a message or a request to a run."""

from __future__ import annotations

from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit
from buoy.operations.control.messages import RequestMade, Sent


def print_sent(done: Sent, *, as_json: bool) -> Exit:
    """What was sent, and a hint if the run may not read it soon."""
    if as_json:
        print_json(done)
        return Exit.OK
    say(done.text)
    if done.hint is not None:
        say(done.hint, err=True)
    return Exit.OK


def print_request(done: RequestMade, *, as_json: bool) -> Exit:
    """What was asked for, and whether it has happened."""
    if as_json:
        print_json(done)
    else:
        say(done.text)
    return Exit.OK
