"""Diagnose: facts about a run in, findings out. Pure: nothing is changed, nothing is read, and it never raises.

Invariants: what is judged by the document (A1 to A3, D2) is judged only when it claims to be current, and never under a
live owner; a document behind its log is lag, and no finding; one ahead of it is R2, since events may have been lost.
A log or record that could not be read is R1, and stops the diagnosis.
The order of the findings is the order in which they are acted on: one remedy, then it is diagnosed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from buoy.core.diagnosis.allocation_rules import allocation_findings
from buoy.core.diagnosis.case import Case, open_case
from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.diagnosis.crash_loops import crashes, poison_finding
from buoy.core.diagnosis.document_drift import log_gone_text
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.findings import Finding
from buoy.core.diagnosis.log_rules import healthy_findings, log_findings, version_findings
from buoy.core.diagnosis.ownership_rules import care_findings
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import State
from buoy.errors import CorruptLog


def diagnose(facts: Facts, *, state: State | None = None) -> list[Finding]:
    """Everything that is found about a run, healthy oddities last. `state`: the folded log, if the caller has it."""
    if facts.unreadable is not None:
        return [_unreadable(facts.unreadable)]
    try:
        return list(_findings(facts, state))
    except CorruptLog as error:
        return [_unreadable(str(error))]
    except Exception as error:  # noqa: BLE001 - a run that cannot be judged must be seen, and must not stop a sweep
        return [_unreadable(f"it cannot be judged: {type(error).__name__}: {error}")]


def _unreadable(why: str) -> Finding:
    return Finding(code="R1", trouble=True, reason=why, remedy="none")


def _findings(facts: Facts, state: State | None) -> Iterator[Finding]:
    case = open_case(facts, state)
    if case.state is not None and case.folded is None:
        yield from _not_ours(case)
        return
    if case.folded is not None and case.folded.status is Status.MOVED:
        return  # it lives in another store, and nothing may be appended here
    parts: tuple[Callable[[], Iterator[Finding]], ...] = (
        lambda: log_findings(case),
        lambda: version_findings(case),
        lambda: _poison(case),
        lambda: care_findings(case),
        lambda: allocation_findings(() if facts.cluster is None else facts.cluster.orphans),
        lambda: healthy_findings(case),
    )
    for part in parts:
        for finding in part():
            assert CATALOGUE[finding.code].trouble or not finding.trouble
            yield finding


def _not_ours(case: Case) -> Iterator[Finding]:
    """A run whose log does not begin as ours do."""
    facts = case.facts
    if facts.task is None or not facts.task.id:
        yield Finding(
            code="Q6",
            trouble=True,
            reason="it has no workflow_created and no orchestrator task: another system wrote it",
            remedy="adopt",
            evidence={"status": facts.document.status, "events": len(case.log)},
        )
    else:
        gone = log_gone_text((facts.stored or facts.document).head_seq)
        yield _unreadable("its log does not begin with workflow_created" if case.log else gone)


def _poison(case: Case) -> Iterator[Finding]:
    if case.folded is None or case.folded.ended or case.status is Status.PAUSED:
        return
    found = crashes(case.log)
    if found.poison:
        yield poison_finding(found)
