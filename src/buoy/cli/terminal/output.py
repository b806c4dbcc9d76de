"""Output: lines for people, and JSON on standard output; with `--json` nothing else goes there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import click

from buoy.cli.terminal.outlets import outlet
from buoy.cli.terminal.visible import visible


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Text for people. Control characters in it are shown, not obeyed: errors and reasons come from elsewhere."""
    click.echo(visible(text), err=err, nl=nl)


def say_line(line: str, *, as_json: bool) -> None:
    """One line of a long report: JSON as it is, or text for people."""
    if as_json:
        click.echo(line)
    else:
        say(line)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def json_line(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


@contextlib.contextmanager
def results_alone(*, as_json: bool) -> Iterator[TextIO]:
    """Yields standard output. With `as_json`, all other output inside goes to standard error.

    That includes output of user code and of the processes that it starts.
    """
    real = sys.stdout
    if not as_json:
        yield real
        return
    if _descriptor(real) != 1:
        # Not the process's own output (a test, an embedding program): nothing else can reach it.
        with contextlib.redirect_stdout(sys.stderr):
            yield real
        return
    real.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with outlet(kept, like=real) as out, contextlib.redirect_stdout(sys.stderr):
            yield out
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
