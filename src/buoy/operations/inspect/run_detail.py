"""Run detail: all that is known about one run: health, owner, input, result, steps and waits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.diagnosis.facts import Facts
from buoy.core.ids import BranchId, LeafId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.engine.client.client import Client
from buoy.operations.inspect.leaf_views import LeafView, leaf_views
from buoy.operations.inspect.run_view import RunView, run_view
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import read_fleet


class BranchView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A branch of the log: event `seq` made it at time `at`; of its parent it sees events up to `cutoff_seq`."""

    branch: BranchId
    parent: BranchId
    cutoff_seq: int
    cause: str
    seq: int
    at: float
    kept: tuple[LeafId, ...] = ()
    dropped: tuple[LeafId, ...] = ()


class RunDetail(RunView, frozen=True, omit_defaults=True, kw_only=True):
    """One run with all that its log has: `buoy show --json`."""

    input: msgspec.Raw | None = None
    result: msgspec.Raw | None = None
    leaves: tuple[LeafView, ...] = ()
    # All branches but the first, in the order in which they were made. The last one is current.
    branches: tuple[BranchView, ...] = ()


class InspectedRun(msgspec.Struct, frozen=True):
    """The facts about a run, and the same as programs get them."""

    facts: Facts
    detail: RunDetail


async def inspect_run(client: Client, run_id: str) -> InspectedRun:
    """One run as it is now."""
    record = await client.record(run_id)
    fleet = await read_fleet(client.store, client.liveness)
    facts, _ = await facts_of_run(client.store, fleet, record)
    return InspectedRun(facts, run_detail(facts))


def run_detail(facts: Facts) -> RunDetail:
    """The log has what no list has room for. If it cannot be read, the rest is shown anyway."""
    base, log = run_view(facts), facts.log or ()
    created = log[0].body if log else None
    return RunDetail(
        **{name: getattr(base, name) for name in base.__struct_fields__},
        input=created.input if isinstance(created, e.WorkflowCreated) else None,
        result=_result(facts, log),
        leaves=tuple(leaf_views(facts.document.run_id, log)) if log else (),
        branches=tuple(_branch(event, event.body) for event in log if isinstance(event.body, e.BranchCreated)),
    )


def _branch(event: e.Event, body: e.BranchCreated) -> BranchView:
    return BranchView(
        branch=body.branch,
        parent=body.parent,
        cutoff_seq=body.cutoff_seq,
        cause=body.cause,
        seq=event.seq,
        at=event.at,
        kept=body.kept,
        dropped=body.dropped,
    )


def _result(facts: Facts, log: Sequence[e.Event]) -> msgspec.Raw | None:
    """Of a run that completed; what came after its end, and what a later branch hid, does not count."""
    if facts.document.status is not Status.COMPLETED:
        return None
    return next((event.body.result for event in reversed(log) if isinstance(event.body, e.WorkflowCompleted)), None)
