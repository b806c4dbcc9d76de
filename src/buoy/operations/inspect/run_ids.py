"""Run ids: completes the beginning of an id to the run that a person means.

Invariants: an id that exists means that run. Otherwise a prefix must be unique; a run stands for its children and
successors, whose ids extend its own. Commands that create or delete runs take whole ids only.
"""

from __future__ import annotations

from buoy.core.ids import RunId, check_run_id
from buoy.errors import BadInput
from buoy.operations.access import StoreAccess

_LOOKED_AT = 50
_SHOWN_MAX = 10


async def complete_run_id(at: StoreAccess, typed: str) -> RunId:
    """The whole id. A text that no id begins with is returned unchanged: looking it up gives the best error."""
    found = await at.store.run_ids(check_run_id(typed), _LOOKED_AT)
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
