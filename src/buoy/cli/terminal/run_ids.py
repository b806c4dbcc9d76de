"""Run ids: which run is meant by what a person typed as RUN.

Invariants: an id that exists means that run. Else the beginning of an id is enough if only one run has it; a run stands
for its children and successors, whose ids extend its own. Commands that make a run, or delete one, take whole ids only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from buoy.cli.terminal.program import go, inspected
from buoy.core.ids import RunId, check_run_id
from buoy.errors import BadInput
from buoy.ports.store import Store

F = TypeVar("F", bound=Callable[..., Any])

_LOOKED_AT = 50
_SHOWN_MAX = 10


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
        return tuple([await meant_run(found.store, each) for each in typed])


async def meant_run(store: Store, typed: str) -> RunId:
    """The whole id. What no run begins with is given back as it is: whoever looks it up says best what became of it."""
    found = await store.run_ids(check_run_id(typed), _LOOKED_AT)
    if not found or typed in found:
        return RunId(typed)
    first = min(found)
    if len(found) == 1 or (len(found) < _LOOKED_AT and all(_belongs(each, first) for each in found)):
        return first
    shown = sorted(found)[:_SHOWN_MAX]
    more = " and more" if len(found) > len(shown) else ""
    raise BadInput(f"several runs begin with {typed!r}: {', '.join(shown)}{more}; type more of the id")


def _belongs(run_id: RunId, to: RunId) -> bool:
    return run_id == to or run_id.startswith(f"{to}.")
