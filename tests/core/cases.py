"""Short ways to write a case down: a log, the document that was stored for it, and which runners are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.facts import Facts, RunnerFacts, TaskFacts
from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import LeafId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.document import Document, document
from buoy.core.log.lifecycle import Status
from buoy.core.log.questions import Question
from buoy.core.log.state import State, fold
from buoy.core.remedy.plan import RecoveryPlan, plan_recovery
from buoy.core.remedy.policy import Decision, decide

from .logbook import BROKEN, RUN

NOW = 2_000.0
WORKER = RunnerFacts(id="w1", host="h", pid=7, beat_age_s=1.0, workflows={"order": ("v1",), "spec:*": ()})
DEAD = msgspec.structs.replace(WORKER, proof={"proof": "lock free"})


def facts_of(log: Sequence[e.Event], *, claims: Status | None = None, **more: Any) -> Facts:
    """The facts about a run with that log; `claims`: the status that its stored document wrongly has."""
    folded = document(fold(RUN, log))
    stored = folded if claims is None else msgspec.structs.replace(folded, status=claims)
    given = {"stored": stored, "now": NOW, "runners": (WORKER,), "definition": "unneeded", "task": TaskFacts("t", 1)}
    return Facts(document=folded, log=tuple(log), **(given | more))


def lying(log: Sequence[e.Event], **wrong: Any) -> Document:
    """The document of a log, with something wrong in it."""
    return msgspec.structs.replace(document(fold(RUN, log)), **wrong)


def codes(facts: Facts) -> list[str]:
    """The troubles."""
    return [each.code for each in diagnose(facts) if each.trouble]


def healthy(facts: Facts) -> list[str]:
    """What looks odd and is not. The logs of these tests name no version of their code: that is left out."""
    return [each.code for each in diagnose(facts) if not each.trouble and each.code != "E1"]


def finding(facts: Facts, code: str) -> Finding:
    return next(each for each in diagnose(facts) if each.code == code)


def planned(facts: Facts, code: str, policy: str = "resume") -> RecoveryPlan:
    found = finding(facts, code)
    return plan_recovery(RUN, facts.log or (), found, decide(found, policy, facts), "me", needs=facts.needs)


def planned_as(facts: Facts, found: Finding, decision: Decision) -> RecoveryPlan:
    return plan_recovery(RUN, facts.log or (), found, decision, "me", needs=facts.needs)


def carried_out(log: Sequence[e.Event], plan: RecoveryPlan) -> list[e.Event]:
    """The log after the one commit of a recovery."""
    return [*log, *append(RUN, log, [e.Claimed(runner="me", cause="recovered"), *plan.bodies], log[-1].at, "n").events]


def after(log: Sequence[e.Event], plan: RecoveryPlan) -> State:
    return fold(RUN, carried_out(log, plan))


def module_started(leaf: str, *, group: bool = False) -> e.ModuleStarted:
    step, _, rest = leaf.partition("/")
    return e.ModuleStarted(leaf=LeafId(leaf), step=step, module=rest.partition("#")[0], group=group)


def module_completed(leaf: str) -> e.ModuleCompleted:
    return e.ModuleCompleted(leaf=LeafId(leaf))


def module_failed(leaf: str, error: e.ErrorInfo = BROKEN) -> e.ModuleFailed:
    return e.ModuleFailed(leaf=LeafId(leaf), error=error)


def group_started(leaf: str) -> e.StepStarted:
    return e.StepStarted(leaf=LeafId(leaf), name=leaf.partition("#")[0], group=True)


def failed_as(leaf: str, error: e.ErrorInfo) -> e.StepFailed:
    return e.StepFailed(leaf=LeafId(leaf), error=error)


def asked_in(leaf: str) -> e.InteractionRequested:
    return e.InteractionRequested(leaf=LeafId(leaf), question_id=f"q/{leaf}", question=Question("Go?", "confirm"))


def jumped(to: str, branch: int) -> e.JumpRequested:
    return e.JumpRequested(to=LeafId(to), new_branch=branch)  # type: ignore[arg-type]
