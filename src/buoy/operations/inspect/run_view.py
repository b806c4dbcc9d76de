"""Run view: a run as `--json` gives it, in lists and alone."""

from __future__ import annotations

import msgspec

from buoy.core.diagnosis.facts import Facts, ProgressFacts
from buoy.core.diagnosis.health import Health, judge
from buoy.core.explain.phrases import current_progress
from buoy.core.log.document import Document


class RunView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run as `--json` gives it. The process that reads the store counts the ages: a reader needs no clock."""

    document: Document
    health: Health
    reasons: tuple[str, ...]
    # Since the run was created, and since its last event.
    age_s: float
    unchanged_s: float
    runner: str | None = None
    pid: int | None = None
    host: str | None = None
    beat_age_s: float | None = None
    due_at: float | None = None
    progress: ProgressFacts | None = None
    unread: int = 0


def run_view(facts: Facts) -> RunView:
    verdict, holder = judge(facts), facts.holder
    return RunView(
        document=facts.document,
        health=verdict.health,
        reasons=verdict.reasons,
        age_s=max(facts.now - facts.document.created_at, 0.0),
        unchanged_s=max(facts.now - facts.document.updated_at, 0.0),
        runner=None if holder is None else holder.id,
        pid=None if holder is None else holder.pid or None,
        host=None if holder is None else holder.host or None,
        beat_age_s=None if holder is None else holder.beat_age_s,
        due_at=facts.due_at,
        progress=current_progress(facts),
        unread=facts.unread,
    )
