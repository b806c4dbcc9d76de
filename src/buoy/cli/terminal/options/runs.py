"""Filters: the options that choose runs for a list."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from buoy.cli.terminal.program import duration
from buoy.core.explain.phrases import status_text
from buoy.core.log.lifecycle import Status
from buoy.operations.inspect.runs import RunFilter

F = TypeVar("F", bound=Callable[..., Any])

_NAMES = ("statuses", "workflow", "parent", "text", "newer_than_s", "older_than_s")


def run_filters(command: F) -> F:
    """Gives a command the options, and calls it with `filters`."""

    @wraps(command)
    def filtered(*args: Any, **given: Any) -> Any:
        chosen = {name: given.pop(name) for name in _NAMES}
        return command(*args, filters=RunFilter(**chosen), **given)

    for option in reversed(_OPTIONS):
        filtered = option(filtered)
    return filtered  # type: ignore[return-value]


class StatusChoice(click.Choice[str]):
    """A status, by its name or by the words that `ps` has for it."""

    def __init__(self) -> None:
        # A shell completes words without spaces only.
        self._named = {status_text(each).replace(" ", "_"): each.value for each in Status}
        self._named |= {each.value: each.value for each in Status}
        super().__init__(sorted(self._named))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return self._named[super().convert(str(value).replace(" ", "_"), param, ctx)]


_OPTIONS = (
    click.option("--status", "statuses", multiple=True, type=StatusChoice(),
                 help="Only runs with this status; may be repeated."),
    click.option("--workflow", metavar="NAME", help="Only runs of this workflow."),
    click.option("--parent", metavar="RUN", help="Only the children of this run."),
    click.option("--text", metavar="TEXT", help="Only runs whose id contains this."),
    click.option("--newer-than", "newer_than_s", metavar="TIME", callback=duration,
                 help="Only runs that were created within this time: 2h, 1d..."),
    click.option("--older-than", "older_than_s", metavar="TIME", callback=duration,
                 help="Only runs that were created longer ago than this."),
)  # fmt: skip
