"""The evidence behind an explanation: owner, log, crashes, unread messages, and workers that could take the run.

Invariant: the lines state only what was read. A crash that is not in the log yet counts, because its proof was read.
"""

from __future__ import annotations

from buoy.core.diagnosis.crash_loops import Crashes, crashes
from buoy.core.diagnosis.facts import Facts, RunnerFacts
from buoy.core.diagnosis.health import Health, Verdict
from buoy.core.diagnosis.takers import can_run
from buoy.core.durations import in_words
from buoy.core.explain import phrases
from buoy.core.explain.findings import children_lines
from buoy.core.explain.phrases import Wording
from buoy.core.limits import BEAT_S, POISON_CAP, SOLO_AFTER
from buoy.core.log import events as e
from buoy.core.log.lifecycle import RESTING, Status
from buoy.core.log.wording import counted
from buoy.core.spec.model import is_spec


def evidence_lines(facts: Facts, verdict: Verdict, words: Wording) -> tuple[str, ...]:
    """The facts that the explanation rests on."""
    document, milestones = facts.document, facts.milestones
    found = [] if document.ended and verdict.health is Health.IDLE else [*verdict.reasons, *children_lines(facts)]
    if facts.holder is not None and facts.holder.beat_age_s is not None and verdict.health is not Health.LIVE:
        found.append(f"its last heartbeat was {in_words(facts.holder.beat_age_s)} ago")
    found += [*_length(facts, words), *_lag(facts)]
    if milestones.takeovers and milestones.claimed is not None and milestones.claimed_at is not None:
        often = "once" if milestones.takeovers == 1 else f"{milestones.takeovers} times"
        last = f"; last claimed by {milestones.claimed.runner} {words.past(milestones.claimed_at, facts.now)}"
        found.append(f"it was taken over from a dead runner {often}{last}")
    if milestones.recovered is not None and milestones.recovered_at is not None:
        found.append(f"recovered {words.past(milestones.recovered_at, facts.now)}: {milestones.recovered.reason}")
    if not document.ended:
        found += [*_crashes(facts), *_unread(facts)]
    return tuple(found)


def _length(facts: Facts, words: Wording) -> list[str]:
    """The length of the log and the time of its last event."""
    last = words.past(facts.document.updated_at, facts.now)
    if facts.log is not None and not facts.log:
        return [f"there is no log; its summary is of {last}"]
    length = counted(facts.document.head_seq, "event")
    source = "the log has" if facts.unreadable is None else "by its summary, the log has"
    return [f"{source} {length}, the last of {last}"]


def _lag(facts: Facts) -> list[str]:
    """Lists show an older status. Under a living owner that lasts a moment and is not worth a line."""
    stored, status = facts.stored, facts.document.status
    if stored is None or facts.foreign or facts.live_owner:
        return []
    if stored.head_seq >= facts.document.head_seq or stored.status is status:
        return []
    older = f"lists still show it as {stored.status}, as it was at event {stored.head_seq}"
    return [f"{older}; the next event of the run, or the next sweep, brings them up to date"]


def _crashes(facts: Facts) -> list[str]:
    """How many times in a row the run crashed the process that drove it."""
    found = crash_count(facts)
    if found.in_a_row < 2:
        return []
    place = "" if found.leaf is None else f" at {found.leaf}"
    rule = f"from {SOLO_AFTER} on it is isolated, and after {POISON_CAP} isolated crashes quarantined"
    return [f"its process ended {found.in_a_row} times in a row{place}, {found.solo} of them isolated; {rule}"]


def crash_count(facts: Facts) -> Crashes:
    """The crashes in the log, plus one that is not recorded yet: the last claimer is no longer alive."""
    log, claimed = facts.log or (), facts.milestones.claimed
    if claimed is None or not log or not facts.milestones.takeovers:
        return Crashes()
    if claimed.runner in {each.id for each in facts.runners} or not _driving(facts):
        return crashes(log)
    lost = e.Claimed(runner="", cause="taken_over", evidence={"proof": "lock free"})
    return crashes((*log, e.Event(log[-1].seq + 1, facts.now, lost, log[-1].branch)))


def _driving(facts: Facts) -> bool:
    """True if the last claim was made to drive the run, and no runner has released it since."""
    claimed = facts.milestones.claimed
    # A claim with a finding belongs to a recovery, which releases at once.
    if claimed is None or "finding" in claimed.evidence:
        return False
    drives = claimed.cause not in ("requested", "recovered")
    return drives and facts.document.status not in (Status.INTERRUPTED, Status.PAUSED)


def _unread(facts: Facts) -> list[str]:
    if facts.messages:
        return [f"not read yet: {phrases.listed([phrases.message_text(each, facts) for each in facts.messages])}"]
    kept = "; signals are kept until the workflow waits for them" if facts.document.status in RESTING else ""
    return [f"{counted(facts.unread, 'message')} not used yet{kept}"] if facts.unread else []


def about_takers(facts: Facts) -> tuple[str, ...]:
    """What a person should know before a worker takes the run."""
    document = facts.document
    if facts.holder is not None or document.ended or facts.unreadable is not None or document.pause is not None:
        return ()
    able = [each for each in facts.runners if can_run(document, each)]
    return (*_silent(able), *_other_code(able, facts)) if able else ()


def _silent(able: list[RunnerFacts]) -> tuple[str, ...]:
    """A live process without a heartbeat may be blocked, and then takes nothing."""
    ages = [each.beat_age_s or 0.0 for each in able]
    if min(ages) <= 2 * BEAT_S:
        return ()
    names = phrases.listed([phrases.runner_text(each) for each in able])
    return (
        f"The workers that could run it have sent no heartbeat for {in_words(min(ages))} and may be blocked: {names}.",
    )


def _other_code(able: list[RunnerFacts], facts: Facts) -> tuple[str, ...]:
    """Live workers try their version of the code on the log, and pause the run if it does not fit."""
    document = facts.document
    have = sorted({version for each in able for version in each.workflows.get(document.workflow, ())})
    # Before the first claim the log has nothing that could differ.
    if (
        is_spec(document.workflow)
        or not document.version
        or not have
        or document.version in have
        or not document.claims
    ):
        return ()
    return (
        f"It is bound to version {document.version} of its code, and live workers have {phrases.listed(have)}. A "
        "worker tries its version on the log. If it does not fit, the worker pauses the run, and nothing is lost.",
    )
