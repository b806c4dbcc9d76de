"""Run ids: completes the argument RUN of a command. Commands that create or delete runs do not use it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from buoy.cli.terminal.program import go, inspected
from buoy.core.ids import RunId
from buoy.operations.inspect.run_ids import complete_run_id

F = TypeVar("F", bound=Callable[..., Any])


def run_argument(command: F) -> F:
    """The argument RUN: the command gets the whole id as `run_id`."""
    return click.argument("run_id", metavar="RUN")(_whole_ids(command))


def optional_run_argument(command: F) -> F:
    """[RUN]: None if there is none."""
    return click.argument("run_id", metavar="[RUN]", required=False)(_whole_ids(command))


def run_arguments(command: F) -> F:
    """[RUN]...: the command gets whole ids as `run_ids`."""
    return click.argument("run_ids", metavar="[RUN]...", nargs=-1)(_whole_ids(command))


def _whole_ids(command: F) -> F:
    @wraps(command)
    def resolved(*args: Any, **given: Any) -> Any:
        typed = given["run_ids"] if "run_ids" in given else (given["run_id"],)
        meant = go(_resolved(given["store"], typed)) if typed and typed != (None,) else typed
        if "run_ids" in given:
            given["run_ids"] = meant
        else:
            (given["run_id"],) = meant
        return command(*args, **given)

    return resolved  # type: ignore[return-value]


async def _resolved(store: str | None, typed: tuple[str, ...]) -> tuple[RunId, ...]:
    async with inspected(store) as found:
        return tuple([await complete_run_id(found, each) for each in typed])
