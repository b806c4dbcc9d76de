"""The part of a diagnosis that reads the log: A1 to A4, D2, the version, a lying document, and what only looks odd."""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.diagnosis.case import Case
from buoy.core.diagnosis.document_drift import ahead_text, difference
from buoy.core.diagnosis.failure_rules import failure_finding
from buoy.core.diagnosis.findings import Evidence, Finding
from buoy.core.diagnosis.jump_rules import jump_finding, stray_branches
from buoy.core.diagnosis.stable_points import asking_module, last_module_completed, last_stable, within
from buoy.core.durations import in_words
from buoy.core.ids import LeafId
from buoy.core.limits import QUESTION_OLD_S
from buoy.core.log import events as e
from buoy.core.log.lifecycle import ACTIVE, Status
from buoy.core.spec.model import is_spec


def log_findings(case: Case) -> Iterator[Finding]:
    """A1, A2, A3, A4, D2 in this order; then a document that is wrong in some other way.

    A document that names lost events comes first: what it says is about a log that is not there, and the loss must be
    written down before anything is added to the log.
    """
    if case.ahead and not case.facts.live_owner:
        yield _lost_events(case)
    found: list[Finding] = []
    if case.folded is not None and not case.folded.ended:
        active = case.status in ACTIVE
        checks = (_a1(case), _a2(case), _a3(case), failure_finding(case)) if active else ()
        found = [each for each in (*checks, jump_finding(case)) if each is not None]
        if found and found[0].code in ("A1", "A3") and last_stable(case.lineage) is None:
            found.append(_nothing_stable(case))
    yield from found
    wrong = None if case.folded is None or not case.claims_current else difference(case.stored, case.folded)
    if wrong is not None and case.judged and not any(each.remedy == "branch" for each in found):
        evidence = _both(case)
        yield Finding(code="R2", trouble=True, reason=wrong, remedy="rebuild", evidence=evidence)


def _lost_events(case: Case) -> Finding:
    head, end = case.stored.head_seq, len(case.log)
    evidence = _both(case) | {"lost_from": end + 1, "lost_to": head}
    return Finding(code="R2", trouble=True, reason=ahead_text(head, end), remedy="rebuild", evidence=evidence)


def _both(case: Case) -> Evidence:
    """What document and log say."""
    return {
        "document_status": case.stored.status,
        "log_status": case.status,
        "document_head": case.stored.head_seq,
        "log_end": len(case.log),
        "document_age_s": round(max(case.facts.now - case.stored.updated_at, 0.0), 3),
    }


def _a1(case: Case) -> Finding | None:
    if not case.judged or case.stored.status is not Status.AWAITING_INPUT or case.questions():
        return None
    if case.status is Status.AWAITING_INPUT or case.recovered_since("A1"):
        return None
    stable = last_stable(case.lineage)
    evidence = _both(case) | {"last_stable_event": 0 if stable is None else stable.seq}
    if stable is not None:
        evidence["last_stable_type"] = stable.type
    reason = "status awaiting_input but no pending interaction"
    return Finding(code="A1", trouble=True, reason=reason, remedy="branch", evidence=evidence)


def _a2(case: Case) -> Finding | None:
    if not case.judged or case.stored.status is not Status.RUNNING or case.recovered_since("A2"):
        return None
    asked = case.questions()
    if not asked or _others_at_work(case, asked):
        return None
    question = asked[0]
    body = question.body
    assert isinstance(body, e.InteractionRequested)
    module = asking_module(case.lineage, question)
    evidence = _both(case) | {
        "question": body.question_id,
        "question_event": question.seq,
        "leaf": body.leaf,
        "cut_at": question.seq - 1 if module is None else module.seq,
        "pending": len(asked),
    }
    reason = "status running but has pending interaction"
    return Finding(code="A2", trouble=True, reason=reason, remedy="branch", evidence=evidence)


def _others_at_work(case: Case, asked: list[e.Event]) -> bool:
    """Whether something but the asking modules was under way: then `running` was right."""
    assert case.state is not None
    asking = [leaf for event in asked if (leaf := e.leaf_of(event.body)) is not None]
    busy = [leaf.id for leaf in case.state.open.values() if leaf.kind in ("step", "module") and leaf.phase == "open"]
    return any(not any(within(leaf, each) for leaf in asking) for each in busy)


def _a3(case: Case) -> Finding | None:
    steps = case.facts.steps
    if not case.judged or case.stored.status is not Status.RUNNING or not steps or case.recovered_since("A3"):
        return None
    assert case.state is not None
    if any(leaf.kind != "group" for leaf in case.state.open.values()) or case.questions():
        return None
    done = {leaf.id.rpartition("#")[0] for leaf in case.state.leaves.values() if leaf.phase == "completed"}
    if not done.issuperset(steps):
        return None
    last = last_module_completed(case.lineage)
    evidence = _both(case) | {"steps": len(steps), "cut_at": 0 if last is None else last.seq}
    reason = "status running but all steps completed"
    return Finding(code="A3", trouble=True, reason=reason, remedy="branch", evidence=evidence)


def _nothing_stable(case: Case) -> Finding:
    reason = "nothing in it has completed and no question was answered: a branch begins at 0"
    return Finding(code="NS", trouble=True, reason=reason, remedy="branch", evidence={"log_end": len(case.log)})


# ---- versions


def version_findings(case: Case) -> Iterator[Finding]:
    """E1 and E2. Code needs no definition: what takes the run must fit it, and says so if it does not."""
    state = case.state
    if state is None or state.created is None or case.folded is None or case.folded.ended:
        return
    facts, first = case.facts, state.created.version
    if not state.version:
        if is_spec(state.created.workflow):
            yield _without_version(case, "E1", "it names no version of its spec", first)
        elif facts.definition == "unneeded" or not first:
            reason = "it names no version: any code that fits may drive it"
            yield Finding(code="E1", trouble=False, reason=reason, evidence={"workflow": state.created.workflow})
        return
    if facts.definition == "absent":
        reason = f"version {state.version} is not in this store"
        yield _without_version(case, "E2", reason, first if first != state.version else "")


def _without_version(case: Case, code: str, reason: str, fallback: str) -> Finding:
    assert case.state is not None
    evidence: Evidence = {"version": case.state.version, "initial_version": fallback or None}
    if case.status is Status.PAUSED:
        # It is paused already; the person who resumes it binds it.
        return Finding(code=code, trouble=True, reason=reason, remedy="report", evidence=evidence)
    if fallback and case.facts.initial_definition == "present":
        text = f"{reason}; it falls back to the version that it began with, {fallback}"
        return Finding(code=code, trouble=True, reason=text, remedy="bind", evidence=evidence | {"bind_to": fallback})
    if fallback and case.facts.initial_definition == "unknown":
        return Finding(code=code, trouble=True, reason=reason, remedy="report", evidence=evidence)
    text = f"{reason}, and no version that it could fall back to is: it cannot be recovered as it is"
    return Finding(
        code=code, trouble=True, reason=text, remedy="hold", evidence=evidence | {"class": "misconfiguration"}
    )


# ---- what only looks odd


def healthy_findings(case: Case) -> Iterator[Finding]:
    """B1, B2, C1, C2 and D1: not an issue, each with the reason."""
    if case.state is None or case.folded is None or case.folded.ended:
        return
    yield from _questions(case)
    if not case.facts.live_owner:
        yield from _unfinished(case)
    yield from stray_branches(case)


def _questions(case: Case) -> Iterator[Finding]:
    for event in case.questions():
        body = event.body
        assert isinstance(body, e.InteractionRequested)
        age_s = max(case.facts.now - event.at, 0.0)
        old = age_s > QUESTION_OLD_S
        asked = f"the question {body.question.title!r} has been open for {in_words(age_s)}"
        reason = f"{asked}; it may be answered at any time" if old else f"{asked}: it waits for its answer"
        evidence: Evidence = {"question": body.question_id, "event": event.seq, "age_s": round(age_s, 3)}
        yield Finding(code="B2" if old else "B1", trouble=False, reason=reason, evidence=evidence)


def _unfinished(case: Case) -> Iterator[Finding]:
    assert case.state is not None
    for leaf in case.state.open.values():
        if leaf.kind in ("step", "module") and leaf.phase == "open":
            yield _begun("C1", leaf.id, leaf.started_seq, "the next owner executes it again, with the same key")
        elif leaf.kind == "group":
            yield _begun("C2", leaf.id, leaf.started_seq, "the next owner continues with its next part")


def _begun(code: str, leaf: LeafId, seq: int, then: str) -> Finding:
    reason = f"{leaf} was started and has not completed: {then}"
    return Finding(code=code, trouble=False, reason=reason, evidence={"leaf": leaf, "event": seq})
