"""Runs of another machine in words: what is visible from here, and when a takeover happens.

Invariant: the clocks of two machines are never compared. A time of the other machine is shown as that machine's own.
"""

from __future__ import annotations

from msgspec.structs import replace

from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.durations import in_words
from buoy.core.explain.narrative import Narrative
from buoy.core.explain.phrases import Wording
from buoy.core.limits import LOOKS_APART_S, SUSPECT_AFTER_S
from buoy.core.log.document import Document


def seen_from_afar(narrative: Narrative, facts: Facts, words: Wording) -> Narrative:
    """Adds that this machine cannot see whether the owner still lives."""
    holder, document = facts.holder, facts.document
    if holder is None or not holder.out_of_sight or document.ended:
        return narrative
    run_id, where = document.run_id, f"process {holder.pid} on {holder.host}"
    here = words.advise(f"or look from here, and again after {in_words(LOOKS_APART_S)}", "sweeper", "--once")
    if holder.allocation is not None:
        here = words.advise("or ask Slurm whether its allocation has ended", "sync-status", _root(document))
    return replace(
        narrative,
        evidence=(*narrative.evidence, *_last_beat(facts, words)),
        next=(f"If {where} lives:", *(f"  {line}" for line in narrative.next), f"If it has died: {_taken_over(facts)}"),
        you_can=(
            words.advise(f"on {holder.host}, see at once whether it lives", "why", run_id),
            here,
            *narrative.you_can,
        ),
    )


def _root(document: Document) -> str:
    """The batch run: the run itself, or the one that a lot belongs to."""
    return document.run_id if document.parent is None else document.parent.run


def _last_beat(facts: Facts, words: Wording) -> tuple[str, ...]:
    holder = facts.holder
    assert holder is not None
    place = f"whether process {holder.pid} lives can be seen at once on {holder.host} only"
    if not holder.beats or holder.beat_at is None:
        return (f"{place}; it has not sent a heartbeat yet",)
    beat = f"its last heartbeat is number {holder.beats}, of {words.when(holder.beat_at)} by the clock of {holder.host}"
    noted = "; a sweeper has noted it, and no newer one has come" if holder.suspected else ""
    return (place, f"{beat}{noted}")


def _taken_over(facts: Facts) -> str:
    """Which process notices it, how, and when."""
    holder = facts.holder
    if holder is not None and holder.allocation is not None:
        run = _root(facts.document)
        return (
            f"it is in job {holder.allocation} of Slurm, which starts a runner again while the job runs. When the job "
            f"has ended, `buoy watch {run} --recover` and `buoy sync-status {run}` declare the runner dead."
        )
    others = [each for each in facts.runners if holder is None or each.id != holder.id]
    rule = (
        f"a sweeper elsewhere declares it dead after {in_words(SUSPECT_AFTER_S)} without a new heartbeat, and a second "
        f"look {in_words(LOOKS_APART_S)} later"
    )
    if not any(each.role in ("worker", "sweeper") and not each.out_of_sight for each in others):
        return f"{rule}; but no worker and no sweeper is alive here to look: start one."
    missing = what_is_missing(facts.document, others)
    then = "takes the run over and continues it" if missing is None else f"could take the run over, but {missing}"
    return f"{rule}. A live one here looks every second. Then a worker {then}."
