"""Stream start: what a client that opens a live stream must know at once: whether a runner executes the run.

Invariants: a run that a live runner drives, that rests or that has ended costs one look. A run that should be at work
and is not is diagnosed. It is recovered if the caller and the policy of the run allow that.
"""

from __future__ import annotations

import msgspec

from buoy.core.diagnosis.health import TROUBLES
from buoy.core.log.lifecycle import RESTING
from buoy.engine.client.client import Client
from buoy.operations.control.recover import RecoveryView, recovery_view
from buoy.operations.inspect.run_detail import inspect_run
from buoy.recovery.recover import recover_run


class WatchedRun(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run when its stream opens. `executed`: a live runner drives it. `recovery`: what was found and done if not."""

    run_id: str
    status: str
    health: str
    reasons: tuple[str, ...]
    executed: bool
    head_seq: int
    ended: bool = False
    recovery: RecoveryView | None = None


async def watch_run(client: Client, run_id: str, *, recover: bool) -> WatchedRun:
    """How the run is. `recover`: bring it back if no runner executes it and its policy allows that."""
    seen = await inspect_run(client, run_id)
    doc, facts = seen.detail.document, seen.facts
    rests = doc.ended or doc.pause is not None or doc.status in RESTING
    recovery = None
    if not facts.live_owner and (not rests or seen.detail.health in TROUBLES) and not doc.ended:
        found = await recover_run(client, run_id, dry_run=not recover, stream_open=True)
        recovery = recovery_view(found, dry_run=not recover)
        seen = await inspect_run(client, run_id)
        doc, facts = seen.detail.document, seen.facts
    return WatchedRun(
        run_id=doc.run_id,
        status=doc.status,
        health=seen.detail.health,
        reasons=seen.detail.reasons,
        executed=facts.live_owner,
        head_seq=doc.head_seq,
        ended=doc.ended,
        recovery=recovery,
    )
