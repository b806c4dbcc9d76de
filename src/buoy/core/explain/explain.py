"""Explains a run: what it does, what is wrong, on what evidence, what happens next, what a person can do.

Invariants: pure functions from facts to text. The command line, the API and the web page show the same text. A reader
can type every command as it stands, apart from placeholders in capitals.
"""

from __future__ import annotations

import msgspec

from buoy.core.advice import Advice, act
from buoy.core.diagnosis.catalogue import named
from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.findings import Finding
from buoy.core.diagnosis.health import Health, Verdict, death_of, judge
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.explain import phrases
from buoy.core.explain.by_status import TELLERS, wait_line
from buoy.core.explain.elsewhere import seen_from_afar
from buoy.core.explain.evidence import about_takers, crash_count, evidence_lines
from buoy.core.explain.findings import child_troubles, policy_words, with_findings
from buoy.core.explain.jobs import at_slurm, waits_for_slurm, with_cluster
from buoy.core.explain.narrative import (
    Narrative,
    answers,
    bring_back,
    full_inbox,
    signals,
    stops,
    take_up,
    under_way,
    useful,
)
from buoy.core.explain.phrases import Wording
from buoy.core.explain.stalled import stalled
from buoy.core.explain.standstill import suspect, with_standstill
from buoy.core.explain.store import with_store
from buoy.core.limits import POISON_CAP
from buoy.core.log.lifecycle import RESTING, Status
from buoy.core.log.wording import counted
from buoy.core.remedy.policy import decide


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One run in plain words."""

    run_id: str
    # None: nothing of the run can be read.
    status: Status | None
    health: Health
    headline: str
    now: str
    wrong: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    you_can: tuple[str, ...] = ()
    # The same lines as data.
    advice: tuple[Advice, ...] = ()
    # All findings, notices included.
    findings: tuple[Finding, ...] = ()


def explain(facts: Facts, wording: Wording | None = None) -> Explanation:
    """The facts about a run, in words."""
    words = wording or Wording()
    verdict = judge(facts)
    findings = diagnose(facts)
    narrative = _narrative(facts, verdict, words)
    if verdict.health is not Health.UNKNOWN:
        narrative = child_troubles(with_findings(narrative, facts, findings, words), facts, words)
        narrative = seen_from_afar(with_standstill(narrative, facts, words), facts, words)
        narrative = with_cluster(with_store(narrative, facts, verdict.health), facts, words)
    document = facts.document
    advice = useful(narrative.you_can, facts, words)
    return Explanation(
        run_id=document.run_id,
        status=document.status,
        health=verdict.health,
        headline=narrative.headline,
        now=narrative.now,
        wrong=narrative.wrong,
        evidence=(*narrative.evidence, *evidence_lines(facts, verdict, words)),
        next=(*narrative.next, *full_inbox(facts), *about_takers(facts)),
        you_can=tuple(each.line for each in advice),
        advice=advice,
        findings=tuple(findings),
    )


def _narrative(facts: Facts, verdict: Verdict, words: Wording) -> Narrative:
    match verdict.health:
        case Health.UNKNOWN:
            return _unknown(facts, words)
        case Health.DRIFTED:
            return _drifted(facts, words)
        case Health.DEAD:
            return _dead(facts, words)
        case Health.SUSPECT:
            return suspect(facts, words)
        case Health.STALLED if facts.holder is None:
            return stalled(facts, words)
        case Health.IDLE if waits_for_slurm(facts):
            return at_slurm(facts, words)
        case _ if _not_begun(facts):
            return _about_to_begin(facts, words)
        case _ if _taken_from_the_dead(facts):
            return _queued_again(facts, words)
        case _:
            return TELLERS[facts.document.status](facts, words)


def explain_broken(run_id: str, reason: str, words: Wording) -> Explanation:
    """A run whose log and document are both unreadable."""
    advice = _about_unread(run_id, words)
    return Explanation(
        run_id=run_id,
        status=None,
        health=Health.UNKNOWN,
        headline=f"The state of {run_id} is unknown: its records cannot be read.",
        now="Neither its log nor its summary can be read.",
        wrong=(reason,),
        next=("Nothing: Buoy does not act on what it cannot read. Other runs of this store are not affected.",),
        you_can=tuple(each.line for each in advice),
        advice=advice,
    )


def _about_unread(run_id: str, words: Wording) -> tuple[Advice, ...]:
    return (
        act("keep a copy of the store before anything else"),
        words.advise("see whether more of the store is damaged", "doctor"),
        act("upgrade Buoy, if a newer one wrote the log"),
        act("restore the log from a backup of the store, with all workers stopped; the run then continues from there"),
        act("or bring the run into another store, from a file that an earlier export of it wrote (export, import)"),
        words.advise("give it up: copy its bytes to a file, then remove it", "purge", run_id, "--broken"),
    )


def _undecided(facts: Facts, words: Wording) -> Narrative:
    """A runner holds it, and this process cannot see whether that runner lives."""
    holder = facts.holder
    assert holder is not None
    lock = "A worker or sweeper that can look at the runner's lock takes the run over if the runner has ended."
    you_can = (
        act("look again as the user who runs the workers, where the store can be read in full"),
        words.advise("see all runners", "status"),
    )
    if holder.unreadable is not None:
        lock = "The run stays with that runner until the end of its process is proven; if it lives, it drives the run."
        you_can = (
            words.advise("see what is wrong with the record of that runner", "doctor"),
            words.advise(
                "if its process has certainly ended, declare it dead; its runs are taken over", "doctor",
                "--declare-dead", holder.id,
            ),
        )  # fmt: skip
    return Narrative(
        headline=f"Whether a live process drives {facts.document.run_id} cannot be seen from here.",
        now=f"{phrases.runner_text(holder)} holds it; its last known status is {facts.document.status}.",
        wrong=(f"it is unknown whether that runner lives: {holder.doubt}",),
        next=(lock,),
        you_can=you_can,
    )


def _unknown(facts: Facts, words: Wording) -> Narrative:
    if facts.unreadable is None and facts.holder is not None and facts.holder.doubt is not None:
        return _undecided(facts, words)
    run_id = facts.document.run_id
    return Narrative(
        headline=f"The state of {run_id} is unknown: its log is damaged or cannot be read.",
        now=f"By its summary it was {facts.document.status.replace('_', ' ')}, with "
        f"{counted(facts.document.head_seq, 'event')}. The log is the only record of what it has done.",
        wrong=(facts.unreadable or "its log cannot be read", *_holder_ended(facts)),
        next=("Nothing: Buoy does not act on what it cannot read. Other runs of this store are not affected.",),
        you_can=_about_unread(run_id, words),
    )


def _holder_ended(facts: Facts) -> tuple[str, ...]:
    """The end of the owner is visible even if the log is damaged."""
    holder = facts.holder
    if holder is None or not holder.gone:
        return ()
    return (f"{phrases.runner_text(holder)}, which held it, has ended too: {'; '.join(death_of(holder))}",)


def _drifted(facts: Facts, words: Wording) -> Narrative:
    asks = facts.document.status is Status.AWAITING_INPUT
    return Narrative(
        headline=f"The summary of {facts.document.run_id} disagrees with its log.",
        now="The log is the truth; lists and this page may show it wrongly.",
        wrong=(facts.drift or "document and log disagree",),
        next=("The next event of the run rewrites its summary.",),
        you_can=TELLERS[facts.document.status](facts, words).you_can if asks else (),
    )


def _dead(facts: Facts, words: Wording) -> Narrative:
    document, holder = facts.document, facts.holder
    assert holder is not None
    busy = under_way(facts)
    done = counted(document.completed_count, "completed part")
    again = f" These run again, with the same idempotency key: {busy}." if busy else ""
    kept = f"Its log is safe{f': {done} will not run again' if document.completed_count else ''}.{again}"
    lost = Finding(code="H1", trouble=True, reason="", remedy="release")
    policy, action = policy_words(lost, facts), decide(lost, document.policy, facts).action
    does = "takes the run over and continues it" if not policy else "does what its policy says"
    if crash_count(facts).poison:
        does, action = "quarantines the run instead of driving it again", "quarantine"
    return Narrative(
        headline=f"{document.run_id} was {_was_doing(facts)} when the process that drove it ended.",
        now=f"No process works on it. {'Its log is safe.' if policy else kept}{_still_waits(facts, words)}",
        wrong=(f"{phrases.runner_text(holder)} is dead and still holds the run", *_again_and_again(facts)),
        next=(
            *_who_takes_it(facts, f"finds the dead process within a second, {does}", bool(policy)),
            *policy,
            *_aside(facts),
        ),
        you_can=(
            *answers(facts, words),
            *signals(facts, words),
            *take_up(facts, words),
            *bring_back(facts, words, action),
        ),
    )


def _again_and_again(facts: Facts) -> tuple[str, ...]:
    """One crash may be chance. From the second in a row on, the step is the likely cause."""
    found = crash_count(facts)
    if found.in_a_row < 2:
        return ()
    step = "what it executes" if found.leaf is None else f"step {found.leaf}"
    return (f"that happened {found.in_a_row} times in a row: {step} may crash the process",)


def _aside(facts: Facts) -> tuple[str, ...]:
    if not crash_count(facts).poison:
        return ()
    return (f"Buoy does not drive it again: it crashed its process {POISON_CAP} times while isolated: {named('P1')}.",)


def _still_waits(facts: Facts, words: Wording) -> str:
    """The waits outlast the process that held them."""
    if facts.document.status not in RESTING:
        return ""
    lines = [wait_line(each, facts, words) for each in facts.document.open if each.kind != "group"]
    return f" It still waits: {phrases.listed(lines)}." if lines else ""


def _was_doing(facts: Facts) -> str:
    busy, document = under_way(facts), facts.document
    if busy:
        return f"executing {busy}"
    waits = [
        f"attempt {each.attempt + 1} of {phrases.retried_text(each)}" if each.retrying else phrases.leaf_text(each)
        for each in document.open
        if each.kind != "group"
    ]
    named = f"waiting for {phrases.listed(waits)}"
    return named if waits and document.status in RESTING else document.status.replace("_", " ")


def _not_begun(facts: Facts) -> bool:
    """A living runner holds the task, but the last claim in the log is another runner's."""
    claimed, holder = facts.milestones.claimed, facts.holder
    if claimed is None or holder is None or facts.document.status is Status.PAUSED:
        return False
    return not facts.document.ended and claimed.runner != holder.id


def _about_to_begin(facts: Facts, words: Wording) -> Narrative:
    document, holder = facts.document, facts.holder
    assert holder is not None
    busy = under_way(facts)
    alone = crash_count(facts).wants_solo
    waits = f"{phrases.runner_text(holder)} holds it and has not begun"
    return Narrative(
        headline=f"{document.run_id} is about to continue{' at ' + busy if busy else ''}; no process executes it yet.",
        now=f"{waits}: it is isolated, so it waits until nothing else runs there." if alone else f"{waits}.",
        next=("It begins when that runner executes nothing else." if alone else "It begins in a moment.",),
        you_can=(*answers(facts, words), *signals(facts, words), *stops(facts, words)),
    )


def _taken_from_the_dead(facts: Facts) -> bool:
    """Its owner is gone and it is due again, but no runner has claimed it yet."""
    document = facts.document
    return (
        facts.holder is None
        and facts.due_at is not None
        and document.status
        in (
            Status.RUNNING,
            Status.COMPENSATING,
        )
    )


def _queued_again(facts: Facts, words: Wording) -> Narrative:
    busy = under_way(facts)
    return Narrative(
        headline=f"{facts.document.run_id} was left behind and is queued to continue{' at ' + busy if busy else ''}.",
        now="No process works on it at this moment.",
        next=_who_takes_it(facts, "takes it in turn"),
        you_can=take_up(facts, words),
    )


def _who_takes_it(facts: Facts, does: str, sweeper_does: bool = False) -> tuple[str, ...]:
    missing = what_is_missing(facts.document, facts.runners)
    if sweeper_does and any(each.role in ("worker", "sweeper") for each in facts.runners):
        return (f"A live sweeper {does}.",)
    if missing is not None:
        who = "a worker or a sweeper" if sweeper_does else "a worker"
        return (f"Nothing until you start {who}: {missing}. Nothing is lost until then.",)
    return (f"A live worker that knows workflow {facts.document.workflow!r} {does}.",)
