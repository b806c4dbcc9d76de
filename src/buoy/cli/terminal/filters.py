"""Filters: which runs a list shows, as options of a command."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click
import msgspec

from buoy.cli.terminal.program import duration
from buoy.core.ids import check_run_id
from buoy.errors import BadInput
from buoy.ports.records import RunQuery

F = TypeVar("F", bound=Callable[..., Any])


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for; ages are counted back from now when the list is made."""

    workflow: str | None = None
    parent: str | None = None
    text: str | None = None
    newer_than_s: float | None = None
    older_than_s: float | None = None

    def query(self, statuses: tuple[str, ...], now: float) -> RunQuery:
        if self.newer_than_s is not None and (self.older_than_s or 0.0) >= self.newer_than_s:
            raise BadInput("no run is both older than --older-than and newer than --newer-than")
        return RunQuery(
            statuses=statuses,
            workflow=self.workflow,
            parent=None if self.parent is None else check_run_id(self.parent),
            text=self.text or "",
            created_from=None if self.newer_than_s is None else now - self.newer_than_s,
            created_before=None if self.older_than_s is None else now - self.older_than_s,
        )


def run_filters(command: F) -> F:
    """Gives a command the options, and calls it with `filters`."""

    @wraps(command)
    def filtered(*args: Any, **given: Any) -> Any:
        chosen = {name: given.pop(name) for name in Filters.__struct_fields__}
        return command(*args, filters=Filters(**chosen), **given)

    for option in reversed(_OPTIONS):
        filtered = option(filtered)
    return filtered  # type: ignore[return-value]


_OPTIONS = (
    click.option("--workflow", metavar="NAME", help="Only runs of this workflow."),
    click.option("--parent", metavar="RUN", help="Only the children of this run."),
    click.option("--text", metavar="TEXT", help="Only runs whose id contains this."),
    click.option("--newer-than", "newer_than_s", metavar="TIME", callback=duration,
                 help="Only runs that were created within this time: 2h, 1d..."),
    click.option("--older-than", "older_than_s", metavar="TIME", callback=duration,
                 help="Only runs that were created longer ago than this."),
)  # fmt: skip
