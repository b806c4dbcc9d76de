"""Remedies: applies recovery plans. One commit for each, with the run's task in it.

Invariants: a remedy is appended to the log that was diagnosed, so of several sweepers one wins and the others
lose. Every outcome is certain (`engine.services.commits`). Everything here may be cut off at any point and done again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from buoy.core.diagnosis.facts import Facts
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.append import append
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.core.remedy.plan import RecoveryPlan
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.engine.run.owed import CreateRun, Owed, duties_left
from buoy.engine.run.run_time import run_now
from buoy.engine.services.commits import commit_surely, send_surely, write_of
from buoy.errors import Unavailable, UserError
from buoy.ports.records import Ended, Evidence, Orphan, Released, RunRecord, TaskChange

_NO_INPUT = msgspec.Raw(b"{}")
# A child that hands over again and again; beyond this its parent is looked at by the next reconcile.
_CHAIN_MAX = 1_000


async def apply(client: Client, record: RunRecord, facts: Facts, plan: RecoveryPlan, actor: str) -> bool:
    """Does what the plan says. False: another process moved the run on and owns it."""
    if facts.live_owner:
        # The live owner acts itself. Only a message can be missing.
        return plan.finding.code == "Q4" and await send_again(client, plan.run_id, facts) > 0
    if plan.finding.remedy == "rebuild":
        return await _rebuild(client, facts, plan, actor)
    if plan.finding.remedy == "adopt":
        return await _take_in(client, facts, actor)
    if not plan.bodies and _is_orphan(facts):
        # Nothing is added to the log: the claim of the next runner says why.
        return await client.store.requeue_orphan(Orphan(plan.run_id, record.holder, plan.reason))
    if plan.finding.code == "Q4" and await send_again(client, plan.run_id, facts):
        return True  # the message has made the task due
    return await _append(client, facts, plan, actor)


def _is_orphan(facts: Facts) -> bool:
    """Whether its task is gone, or held by a runner that is gone or unknown to the store."""
    if facts.task is not None and facts.task.state in ("missing", "ended"):
        return True
    return facts.holder is not None and (not facts.holder.registered or facts.holder.gone_why is not None)


async def _rebuild(client: Client, facts: Facts, plan: RecoveryPlan, actor: str) -> bool:
    """Writes the document again from the log. If events may have been lost, the log says so before the document that
    is the only witness of it is gone."""
    log = facts.log or ()
    if not plan.bodies:
        return await client.store.archive.rewrite(plan.run_id, document(fold(plan.run_id, log)), len(log))
    # The store may still expect an event after the lost ones. The document stays as it is: cut off here, it is found
    # again.
    stored = facts.stored or facts.document
    return await client.store.archive.rewrite(plan.run_id, stored, len(log)) and await _append(
        client, facts, plan, actor
    )


async def _take_in(client: Client, facts: Facts, actor: str) -> bool:
    """Gives a foreign document the log that it never had. Its input is not known: it starts from the beginning."""
    doc, now = facts.stored or facts.document, client.clock.now()
    born = e.WorkflowCreated(
        workflow=doc.workflow,
        input=_NO_INPUT,
        version=doc.version,
        policy=doc.policy,
        queue=doc.queue,
        stack=doc.stack,
        env=doc.env,
        parent=doc.parent,
        by=actor,
    )
    claim = e.Claimed(runner=actor, cause="recovered", evidence={"finding": "Q6", "status": doc.status})
    new = append(doc.run_id, (), [born, claim], now, client.ids.nonce())
    return await commit_surely(client.store, write_of(new, Released(due_at=now, now=now, cause="created")))


async def _append(client: Client, facts: Facts, plan: RecoveryPlan, actor: str) -> bool:
    """Claims the run with all that the plan says, in one commit."""
    log = facts.log or ()
    # A crash is counted by the claim that follows it, which any process may make.
    cause = "taken_over" if plan.finding.code == "H1" else "recovered"
    evidence: Evidence = {"finding": plan.finding.code, **plan.finding.evidence}
    now = client.clock.now()
    claim = e.Claimed(runner=actor, cause=cause, evidence=evidence)
    at = await run_now(client.store, client.clock, plan.run_id, log[-1].at)
    new = append(plan.run_id, log, [claim, *plan.bodies], at, client.ids.nonce())
    duties = duties_left(plan.run_id, [*log, *new.events]) if plan.ends else []
    # A remedy that only records a loss leaves the task with its holder, so that the holder's death is still found.
    change = None if plan.finding.remedy == "rebuild" else _task(plan, now, owes=bool(duties))
    if not await commit_surely(client.store, write_of(new, change)):
        return False
    await do_duties(client, duties)
    return True


def _task(plan: RecoveryPlan, now: float, *, owes: bool) -> TaskChange:
    """Due now, even if the log is dated later: a clock that was wrong once must not put the run off until then.

    `seen` stays as it is: a process that consumed nothing must not hide messages from the next owner.
    """
    if plan.ends and not owes:
        return Ended()
    return Released(due_at=now if plan.wakes or owes else None, now=now, cause="resumed")


async def do_duties(client: Client, duties: Sequence[Owed]) -> int:
    """Does at once what an end owes to others: perhaps no living runner could take the task for it. A duty that fails
    here is left to the next runner. Returns the number of duties that were still open."""
    done = 0
    for duty in duties:
        try:
            if isinstance(duty, CreateRun):
                done += await _create(client, duty)
            else:
                done += not (await send_surely(client.store, duty.message)).duplicate
        except (Unavailable, UserError):
            continue  # the run keeps its task for as long as it owes something
    return done


async def _create(client: Client, duty: CreateRun) -> bool:
    """Create-if-absent, for any runner to take. Whether it was absent."""
    if await client.store.run(duty.run_id) is not None:
        return False
    now = client.clock.now()
    new = append(duty.run_id, (), [duty.created], now, client.ids.nonce())
    return await commit_surely(client.store, write_of(new, Released(due_at=now, now=now, cause="created")))


# Messages of a child to its parent: how its jobs ended, if it is a lot, and its own end.
_UPWARDS = ("jobs", "child_finished")


async def send_again(client: Client, run_id: RunId, facts: Facts) -> int:
    """Sends a run the ends of those of its children that have ended. The number of those that it did not have yet."""
    sent = 0
    for leaf in list(fold(run_id, facts.log or ()).open.values()):
        if leaf.kind == "child" and leaf.child is not None:
            sent += await _end_of(client, leaf.child.child)
    return sent


async def _end_of(client: Client, child: RunId) -> int:
    """Repeats what an ended child owes: the message to its parent, or the successor that will send it."""
    for _ in range(_CHAIN_MAX):
        record = await client.store.run(child)
        if record is None or not record.document.ended:
            return 0
        owed = duties_left(child, await read_log(client.store, child))
        duties = [duty for duty in owed if isinstance(duty, CreateRun) or duty.message.kind in _UPWARDS]
        done = await do_duties(client, duties)
        ending = next((duty.run_id for duty in duties if isinstance(duty, CreateRun)), None)
        if done or ending is None:
            return done
        child = ending
    return 0
