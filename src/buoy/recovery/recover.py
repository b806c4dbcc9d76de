"""Recover: one run through the whole pipeline: evidence, diagnosis, policy, claim, remedy, audit; then diagnosed again.

Invariants: never under a living owner. Each remedy is one fenced commit: a crash between two calls leaves the run as it
was or recovered, and the next recovery continues. Buoy does nothing about a run that it cannot read. A remedy that
does not remove its finding is not applied twice. A document that lags behind its log is brought up to date.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.findings import Finding, Scalar, first_notice, first_trouble
from buoy.core.ids import BranchId, RunId
from buoy.core.limits import RECOVERY_PASSES_MAX
from buoy.core.log.document import Document
from buoy.core.remedy.plan import RecoveryPlan, plan_recovery
from buoy.core.remedy.policy import Lookup, Ruling, decide, lookup_policy
from buoy.engine.client.client import Client
from buoy.engine.services.recovery_log import note_recovery
from buoy.errors import CorruptLog, Problem, StoreUnusable, Unavailable, UserError, WrongState
from buoy.ports.records import Broken, RunRecord
from buoy.recovery import remedies
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import Fleet, read_fleet

UNREADABLE = "R1"
# How the names of ages in evidence end.
AGE = "_s"
Mark: TypeAlias = tuple[str, str, frozenset[tuple[str, Scalar]]]


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one recovery.

    `error`: why a run that needs a recovery did not get one, or not all of it.
    `note`: what is left for a person or another process to do, or a notice about a healthy run.
    `action`: none, resume, restart, retry, compensate, fail, hold or quarantine; report: only a person or another
    process can act; skip: the policy is unknown; lost: another process was quicker; unknown: the run could not be read.
    """

    run_id: RunId
    needed: bool = False
    new_branch_id: BranchId | None = None
    reason: str | None = None
    error: str | None = None
    note: str | None = None
    action: str = "none"
    findings: tuple[Finding, ...] = ()
    # What the log says that it is doing, where it was read.
    document: Document | None = None
    # What would be done, or was done last.
    plan: RecoveryPlan | None = None
    # The store gave no answer: a later look may see more.
    unanswered: bool = False

    @classmethod
    def of_broken(cls, found: Broken) -> Recovery:
        """A run that a list could not read."""
        return cls(run_id=RunId(found.id), action="unknown", error=f"it could not be read: {found.reason}")

    @classmethod
    def unread(cls, run_id: RunId, error: Exception) -> Recovery:
        """The result for a run that could not be read. An error that is not Buoy's own is named."""
        why = str(error) if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
        text = f"it could not be read: {why}"
        return cls(
            run_id=run_id, action="unknown", error=text, unanswered=not isinstance(error, CorruptLog | UserError)
        )


class LookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is looked at: what `recover_run` was given."""

    fleet: Fleet | None = None
    stale_after_s: float | None = None
    stream_open: bool | None = None


class Examined(msgspec.Struct, frozen=True):
    """A run as it was found, and what that means."""

    record: RunRecord
    facts: Facts
    findings: list[Finding]


async def recover_run(
    client: Client,
    run_id: str,
    *,
    dry_run: bool = False,
    policy: Lookup | None = None,
    adopt: bool = False,
    actor: str | None = None,
    stale_after_s: float | None = None,
    fleet: Fleet | None = None,
    stream_open: bool | None = None,
    shown: str | None = None,
) -> Recovery:
    """Checks a run and recovers it if something is wrong. `dry_run`: only says what would be done.

    `shown`: the id of a plan. Only that plan is applied; if the run needs another one now, nothing is done.

    `fleet`: the runners, if they were just read; `stale_after_s`: after how long without progress a run may hang;
    `stream_open`: whether a client watches it live, None if the caller does not know.
    """
    by = actor or client.actor
    look = LookOptions(fleet=fleet, stale_after_s=stale_after_s, stream_open=stream_open)
    done = await _recover(client, RunId(run_id), look, dry_run=dry_run, policy=policy, adopt=adopt, by=by, shown=shown)
    if done.plan is not None and done.action != "lost" and not dry_run:
        workflow = "" if done.document is None else done.document.workflow
        note_recovery(
            done.plan,
            reason=done.reason or "",
            workflow=workflow,
            actor=by,
            branch=done.new_branch_id,
            error=done.error,
        )
    return done


async def _recover(
    client: Client,
    run: RunId,
    look: LookOptions,
    *,
    dry_run: bool,
    policy: Lookup | None,
    adopt: bool,
    by: str,
    shown: str | None,
) -> Recovery:
    done = Recovery(run_id=run)
    tried: set[Mark] = set()
    for _ in range(RECOVERY_PASSES_MAX):
        try:
            seen = await _examined(client, run, look)
            wanted = _wanted(client, seen, policy=policy, adopt=adopt, actor=by)
            if wanted.plan is None and not dry_run:
                await _catch_up(client, seen)
            if shown is not None and not done.needed:
                _check_shown(wanted, shown)
            if wanted.plan is None or dry_run:
                return _end(done, _with_others(wanted))
            if shown is not None and done.needed:
                return _end(done, replace(wanted, note=wanted.reason))  # the next remedy was not shown
            mark = _mark(wanted.plan)
            if mark in tried:
                return replace(done, error=f"{wanted.reason}, though its remedy was applied")
            tried.add(mark)
            if not await remedies.apply(client, seen.record, seen.facts, wanted.plan, by):
                lost = replace(wanted, action="lost", new_branch_id=None, error="another process moved it on")
                return done if done.needed else lost
        except (Unavailable, StoreUnusable, CorruptLog) as error:
            unread = Recovery.unread(run, error)
            return replace(done, error=unread.error) if done.needed else unread
        done = _joined(done, wanted)
    return replace(done, error=f"it needed more than {RECOVERY_PASSES_MAX} remedies")


def _mark(plan: RecoveryPlan) -> Mark:
    """By which the same finding is known again: its facts without their ages, which grow from look to look."""
    facts = {name: value for name, value in plan.finding.evidence.items() if not name.endswith(AGE)}
    return plan.finding.code, plan.action, frozenset(facts.items())


def _check_shown(wanted: Recovery, shown: str) -> None:
    """Refuses another plan than the one that a person saw. A run that cannot be judged now is reported as usual."""
    if wanted.plan is None and wanted.error is not None:
        return
    now = None if wanted.plan is None else wanted.plan.id
    if now != shown:
        needs = "needs no recovery any more" if now is None else f"needs another recovery now (plan {now})"
        raise WrongState(f"run {wanted.run_id} has changed since plan {shown} was shown: it {needs}; look again")


async def examine(
    client: Client, run_id: RunId, *, fleet: Fleet | None = None, stale_after_s: float | None = None
) -> Examined:
    """Gathers the evidence about a run and judges it."""
    return await _examined(client, run_id, LookOptions(fleet=fleet, stale_after_s=stale_after_s))


async def _examined(client: Client, run_id: RunId, look: LookOptions) -> Examined:
    record = await client.record(run_id)
    # A holder that is not among them is looked for again.
    known = look.fleet or await read_fleet(client.store, client.liveness)
    facts, state = await facts_of_run(
        client.store, known, record, stale_after_s=look.stale_after_s, stream_open=look.stream_open
    )
    return Examined(record, facts, diagnose(facts, state=state))


async def _catch_up(client: Client, seen: Examined) -> None:
    """Rewrites a document that is merely older than its log: no finding, but lists should not show it."""
    facts = seen.facts
    log, stored = facts.log or (), facts.stored
    if facts.live_owner or facts.foreign or stored is None or stored.head_seq >= len(log):
        return
    await client.store.archive.rewrite(facts.document.run_id, facts.document, len(log))


async def write_down_loss(client: Client, run_id: RunId) -> bool:
    """Repairs a document that is ahead of its log. The log records that events may have been lost."""
    seen = await examine(client, run_id)
    lost = next((each for each in seen.findings if "lost_to" in each.evidence), None)
    if lost is None:
        return False
    decision = decide(lost, seen.facts.document.policy, seen.facts)
    plan = plan_recovery(run_id, seen.facts.log or (), lost, decision, client.actor)
    return await remedies.apply(client, seen.record, seen.facts, plan, client.actor)


def _wanted(client: Client, seen: Examined, *, policy: Lookup | None, adopt: bool, actor: str) -> Recovery:
    """The remedy for a run; without a plan if none is needed or allowed."""
    document = seen.facts.document
    found = Recovery(run_id=document.run_id, findings=tuple(seen.findings), document=document)
    unreadable = next((each for each in seen.findings if each.code == UNREADABLE), None)
    if unreadable is not None or seen.facts.log is None:
        return replace(found, action="unknown", error=unreadable.text() if unreadable else "its log was not read")
    finding = first_trouble(seen.findings)
    if finding is None:
        first = next((each for each in seen.findings if each.trouble), None)
        if first is not None:
            return replace(found, action="report", note=first.text())
        notice = first_notice(seen.findings)
        return found if notice is None else replace(found, note=notice.text())
    found = replace(found, needed=True, reason=finding.text())
    ruling = ruling_of(client, document, policy)
    if ruling.policy is None:
        return replace(found, action="skip", error=ruling.problem)
    decision = decide(finding, ruling.policy, seen.facts, orphaned=ruling.orphaned, adopt=adopt)
    if decision.action == "skip":
        return replace(found, action="skip", error=decision.why)
    if finding.remedy == "adopt" and seen.facts.log:
        return replace(found, action="skip", error="it has a log that is not ours, and cannot be taken in")
    plan = plan_recovery(found.run_id, seen.facts.log, finding, decision, actor, needs=seen.facts.needs)
    return replace(found, action=plan.action, plan=plan, new_branch_id=plan.branch, reason=plan.reason)


def _with_others(wanted: Recovery) -> Recovery:
    """The other findings, beside the one that is repaired first."""
    if wanted.plan is None:
        return wanted
    first = wanted.plan.finding
    others = [each.text() for each in wanted.findings if each.trouble and each != first and each.code != "NS"]
    return replace(wanted, note="; ".join(others) or None)


def _end(done: Recovery, last: Recovery) -> Recovery:
    """The last look, after whatever was done before it."""
    if not done.needed:
        return last
    return replace(done, findings=last.findings, error=last.error or done.error, note=last.note)


def _joined(done: Recovery, more: Recovery) -> Recovery:
    """One remedy after another. The plan that cannot be carried out to its end says why."""
    plan = more.plan
    reason = f"{done.reason}; then {more.reason}" if done.needed else more.reason
    branch = more.new_branch_id if more.new_branch_id is not None else done.new_branch_id
    return replace(more, reason=reason, new_branch_id=branch, error=plan.error if plan is not None else None)


def ruling_of(client: Client, document: Document, callback: Lookup | None) -> Ruling:
    """The policy of a run: as the callback says, the code of this process, or its first event."""

    def known(doc: Document) -> str | None:
        workflow = client.registry.get(doc.workflow)
        return None if workflow is None else workflow.recovery

    return lookup_policy(document, callback, known, document.policy)
