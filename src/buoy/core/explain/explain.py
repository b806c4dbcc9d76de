"""Explain: what a run is doing, what is wrong, on what evidence, what happens next and what a person can do.

Invariants: pure words out of facts; the one wording for the command line, the API and the page. Every command that is
named can be typed as it stands, but for placeholders in capitals.
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
from buoy.core.explain.evidence import crash_count, evidence_lines
from buoy.core.explain.findings import child_troubles, policy_words, with_findings
from buoy.core.explain.narrative import Narrative, answers, bring_back, signals, stops, take_up, under_way
from buoy.core.explain.phrases import Wording
from buoy.core.explain.stalled import stalled
from buoy.core.explain.standstill import suspect, with_standstill
from buoy.core.explain.store import with_store
from buoy.core.explain.takers import about_takers
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
    # The same as data: one for each line.
    advice: tuple[Advice, ...] = ()
    # What was diagnosed, also what only looks odd.
    findings: tuple[Finding, ...] = ()


def explain(facts: Facts, wording: Wording | None = None) -> Explanation:
    """The facts about a run, in words."""
    words = wording or Wording()
    verdict = judge(facts)
    findings = diagnose(facts)
    told = _told(facts, verdict, words)
    if verdict.health is not Health.UNKNOWN:
        told = child_troubles(with_findings(told, facts, findings, words), facts, words)
        told = seen_from_afar(with_standstill(told, facts, words), facts, words)
        told = with_store(told, facts, verdict.health)
    document = facts.document
    advice = (*told.you_can, *_events(facts, words))
    return Explanation(
        run_id=document.run_id,
        status=document.status,
        health=verdict.health,
        headline=told.headline,
        now=told.now,
        wrong=told.wrong,
        evidence=(*told.evidence, *evidence_lines(facts, verdict, words)),
        next=(*told.next, *about_takers(facts)),
        you_can=tuple(each.line for each in advice),
        advice=advice,
        findings=tuple(findings),
    )


def _events(facts: Facts, words: Wording) -> tuple[Advice, ...]:
    """How to see the log, if it can be read."""
    run_id = facts.document.run_id
    return () if facts.unreadable is not None else (words.advise("see all that happened", "events", run_id),)


def headline_of(facts: Facts) -> str:
    """One run in one line: its status, its health, and what is wrong with it or what it does."""
    verdict, document = judge(facts), facts.document
    told = explain(facts)
    said = told.headline.removeprefix(document.run_id).strip(" :")
    text = told.wrong[0] if told.wrong and verdict.health is not Health.UNKNOWN else said
    return " ".join(f"{document.run_id}: {document.status}, {verdict.health}: {text}".split())


def _told(facts: Facts, verdict: Verdict, words: Wording) -> Narrative:
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
        case _ if _not_begun(facts):
            return _about_to_begin(facts, words)
        case _ if _taken_from_the_dead(facts):
            return _queued_again(facts, words)
        case _:
            return TELLERS[facts.document.status](facts, words)


def explain_broken(run_id: str, reason: str, words: Wording) -> Explanation:
    """A run of which neither the log nor a document can be read."""
    advice = _about_unread(run_id, words)
    return Explanation(
        run_id=run_id,
        status=None,
        health=Health.UNKNOWN,
        headline=f"What {run_id} is doing cannot be told: it cannot be read.",
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
        words.advise("give it up: copy its bytes to a file and remove it", "purge", run_id, "--broken"),
    )


def _undecided(facts: Facts, words: Wording) -> Narrative:
    """Somebody holds it of whom nothing tells from here whether he lives."""
    holder = facts.holder
    assert holder is not None
    return Narrative(
        headline=f"Whether {facts.document.run_id} is being driven cannot be told from here.",
        now=f"{phrases.runner_text(holder)} holds it; its last known status is {facts.document.status}.",
        wrong=(f"whether that runner lives is unknown: {holder.doubt}",),
        next=("A worker or sweeper that can look at the runner's lock takes the run over if the runner has ended.",),
        you_can=(
            act("look again as the user who runs the workers, where the store can be read in full"),
            words.advise("see all runners", "status"),
        ),
    )


def _unknown(facts: Facts, words: Wording) -> Narrative:
    if facts.unreadable is None and facts.holder is not None and facts.holder.doubt is not None:
        return _undecided(facts, words)
    run_id = facts.document.run_id
    return Narrative(
        headline=f"What {run_id} is doing cannot be told: its log is damaged or cannot be read.",
        now=f"By its summary it was {facts.document.status.replace('_', ' ')}, with "
        f"{counted(facts.document.head_seq, 'event')}. The log is the only record of what it has done.",
        wrong=(facts.unreadable or "its log cannot be read", *_holder_ended(facts)),
        next=("Nothing: Buoy does not act on what it cannot read. Other runs of this store are not affected.",),
        you_can=_about_unread(run_id, words),
    )


def _holder_ended(facts: Facts) -> tuple[str, ...]:
    """A damaged log does not hide that the process behind it has ended."""
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
        next=("The next event of the run writes its summary anew.",),
        you_can=TELLERS[facts.document.status](facts, words).you_can if asks else (),
    )


def _dead(facts: Facts, words: Wording) -> Narrative:
    document, holder = facts.document, facts.holder
    assert holder is not None
    busy = under_way(facts)
    done = counted(document.completed_count, "completed part")
    again = f" To be executed again, with the same idempotency key: {busy}." if busy else ""
    kept = f"Its log is safe{f': {done} will not be executed again' if document.completed_count else ''}.{again}"
    lost = Finding(code="H1", trouble=True, reason="", remedy="release")
    policy, action = policy_words(lost, facts), decide(lost, document.policy, facts).action
    does = "takes the run over and goes on" if not policy else "does what its policy says"
    if crash_count(facts).poison:
        does, action = "puts the run aside instead of driving it again", "quarantine"
    return Narrative(
        headline=f"{document.run_id} was {_was_doing(facts)} when the process that drove it ended.",
        now=f"Nobody works on it. {'Its log is safe.' if policy else kept}{_still_waits(facts, words)}",
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
    """One crash is bad luck; from the second in a row on the step may be what ends the process."""
    found = crash_count(facts)
    if found.in_a_row < 2:
        return ()
    step = "what it executes" if found.leaf is None else f"step {found.leaf}"
    return (f"that happened {found.in_a_row} times in a row: {step} may be what ends the process",)


def _aside(facts: Facts) -> tuple[str, ...]:
    if not crash_count(facts).poison:
        return ()
    return (
        f"It is not driven again: it ended its process {POISON_CAP} times while it was driven alone: {named('P1')}.",
    )


def _still_waits(facts: Facts, words: Wording) -> str:
    """What it waits for is not lost with the process that waited."""
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
    """A living runner has taken the task, and the last claim of the log is still another's."""
    claimed, holder = facts.story.claimed, facts.holder
    if claimed is None or holder is None or facts.document.status is Status.PAUSED:
        return False
    return not facts.document.ended and claimed.runner != holder.id


def _about_to_begin(facts: Facts, words: Wording) -> Narrative:
    document, holder = facts.document, facts.holder
    assert holder is not None
    busy = under_way(facts)
    alone = crash_count(facts).wants_solo
    waits = f"{phrases.runner_text(holder)} has it, and has not begun"
    return Narrative(
        headline=f"{document.run_id} is about to go on{' at ' + busy if busy else ''}, and nobody executes it yet.",
        now=f"{waits}: it is driven alone, when nothing else is under way there." if alone else f"{waits}.",
        next=("It begins when that runner has nothing else under way." if alone else "It begins in a moment.",),
        you_can=(*answers(facts, words), *signals(facts, words), *stops(facts, words)),
    )


def _taken_from_the_dead(facts: Facts) -> bool:
    """Its owner is gone and it is due again, but nobody has claimed it yet."""
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
        headline=f"{facts.document.run_id} was left behind and is queued to go on{' at ' + busy if busy else ''}.",
        now="Nobody works on it at this moment.",
        next=_who_takes_it(facts, "takes it in turn"),
        you_can=take_up(facts, words),
    )


def _who_takes_it(facts: Facts, does: str, sweeper_does: bool = False) -> tuple[str, ...]:
    missing = what_is_missing(facts.document, facts.runners)
    if sweeper_does and any(each.role in ("worker", "sweeper") for each in facts.runners):
        return (f"A live sweeper {does}.",)
    if missing is not None:
        who = "a worker or a sweeper" if sweeper_does else "a worker"
        return (f"Nothing before somebody starts {who}: {missing}. Nothing is lost meanwhile.",)
    return (f"A live worker that knows workflow {facts.document.workflow!r} {does}.",)
