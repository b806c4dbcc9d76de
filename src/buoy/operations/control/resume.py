"""Resume: continues runs that were left behind, paused or quarantined. Recovery comes first.

Invariants: every run is checked for a needed recovery first; a run that needs one and cannot get it is refused. If no
worker can take the run, the result names what is missing. Listing runs that were left behind changes nothing. A run
that waits for a time, a message or a person is not left behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.health import Health, judge
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.explain.narrative import answered, start_worker, take_up
from buoy.core.explain.phrases import Wording, questions
from buoy.core.ids import RunId
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.lifecycle import ACTIVE, RESTING, Status
from buoy.engine.client.client import Client
from buoy.engine.client.requests import unread_pause
from buoy.errors import Problem, RecoveryFailed, WrongState
from buoy.operations.control.recover import RecoveryView, done_text, recovery_view, strike_off
from buoy.ports.records import RunQuery
from buoy.recovery.evidence import facts_of_page
from buoy.recovery.fleet import read_fleet
from buoy.recovery.recover import Recovery, examine, recover_run

_AWAITS = "it awaits an answer"
# Of a run that other processes recover at the same moment.
_LOOKS_MAX = 3


class AbandonedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that was left behind. `broken`: the run cannot be read, so it cannot be recovered."""

    run_id: RunId
    workflow: str
    status: str
    health: str
    why: str
    broken: bool = False


class AbandonedRuns(msgspec.Struct, frozen=True):
    """What was left behind. `worker_alive`: whether some worker could take any of it."""

    runs: tuple[AbandonedRun, ...]
    worker_alive: bool


class ResumedRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `buoy resume` did with one run, and what it asks now."""

    run_id: str
    done: bool
    text: str
    # What was found or done: `asked` of the run itself, whose text then says so by itself.
    outcome: Literal["asked", "recovered", "awaits_answer", "queued", "refused"] = "asked"
    recovery: RecoveryView | None = None
    questions: tuple[OpenLeaf, ...] = ()
    # Why a run that could continue does not continue yet, and what to start.
    missing: str | None = None
    # If so: the command that executes it, and ends when nothing is due.
    execute: str | None = None
    error: str | None = None


class ResumedRuns(msgspec.Struct, frozen=True):
    """What was done with many runs."""

    runs: tuple[ResumedRun, ...]
    worker_alive: bool

    @property
    def failed(self) -> bool:
        """Whether some could not be resumed."""
        return any(each.error is not None for each in self.runs)


class ReleasedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `buoy release` did. `was`: why the run was held; `missing`: why nothing happens yet."""

    run_id: str
    done: bool
    text: str
    was: str
    missing: str | None = None


async def abandoned_runs(client: Client) -> AbandonedRuns:
    """Everything that was left behind in the client's stack and env."""
    return AbandonedRuns(tuple([each async for each in lost_runs(client)]), await worker_alive(client))


async def worker_alive(client: Client) -> bool:
    """Whether some worker is alive."""
    fleet = await read_fleet(client.store, client.liveness)
    return any(each.role == "worker" for each in fleet.living)


async def lost_runs(client: Client) -> AsyncIterator[AbandonedRun]:
    """Dead, stalled and interrupted runs of the client's stack and env, newest first."""
    cursor: str | None = None
    query = RunQuery(statuses=tuple(sorted(ACTIVE)), stack=client.stack, env=client.env)
    while True:
        page = await client.runs(query, cursor, RUNS_PAGE_MAX)
        # Read after the runs: a runner that just took one of them must be known.
        fleet = await read_fleet(client.store, client.liveness)
        for one in page.broken:
            yield AbandonedRun(RunId(one.id), "", "", Health.UNKNOWN, f"it cannot be read: {one.reason}", broken=True)
        for facts in await facts_of_page(client.store, fleet, page.runs):
            verdict, doc = judge(facts), facts.document
            left = doc.status is Status.INTERRUPTED and facts.holder is None
            if left or verdict.health in (Health.DEAD, Health.STALLED):
                yield AbandonedRun(doc.run_id, doc.workflow, doc.status, verdict.health, "; ".join(verdict.reasons))
        cursor = page.cursor
        if cursor is None:
            return


async def resume_abandoned(client: Client, words: Wording) -> ResumedRuns:
    """Everything that was left behind, one run after the other."""
    found = [each async for each in lost_runs(client)]
    return ResumedRuns(tuple([await _try(client, each, words) for each in found]), await worker_alive(client))


async def _try(client: Client, lost: AbandonedRun, words: Wording) -> ResumedRun:
    """Resumes one of many runs. A refusal is a result, so the other runs are resumed anyway."""
    if lost.broken:
        return ResumedRun(run_id=lost.run_id, done=False, text=lost.why, outcome="refused", error=lost.why)
    try:
        return await resume_run(client, lost.run_id, words, strict=False)
    except Problem as error:
        return ResumedRun(run_id=lost.run_id, done=False, text=str(error), outcome="refused", error=str(error))


async def resume_run(client: Client, run_id: RunId, words: Wording, *, strict: bool = True) -> ResumedRun:
    """Recovers the run if it needs it, continues it, and returns its open questions. `strict`: refuses a run that needs
    neither."""
    holder = (await client.record(run_id)).holder
    found = await _recovered(client, run_id)
    if holder is not None:
        await strike_off(client, holder)
    done = await _moved(client, run_id, found, strict=strict)
    facts = (await examine(client, run_id)).facts
    left = set(answered(facts))
    asked = tuple(each for each in questions(facts.document) if each.question_id not in left)
    if not asked and done.outcome == "awaits_answer":
        done = replace(done, text="its answer is there, and not taken up yet")
    missing = _missing(facts, words)
    execute = None if missing is None else start_worker(facts, words, "--until-idle").typed
    return replace(done, questions=asked, missing=missing, execute=execute)


async def _recovered(client: Client, run_id: RunId) -> Recovery:
    """The recovery. A sweep may have been quicker: that is no failure, so the run is looked at again."""
    found = await recover_run(client, run_id)
    for _ in range(_LOOKS_MAX - 1):
        if found.action != "lost":
            break
        found = await recover_run(client, run_id)
    return found


async def _moved(client: Client, run_id: RunId, found: Recovery, *, strict: bool) -> ResumedRun:
    """What was done to continue it."""
    record = await client.record(run_id)
    doc = record.document
    # What is left for a person to do is reported, too.
    recovery = recovery_view(found) if found.needed or found.action == "report" else None
    if doc.status is Status.FAILED:
        raise WrongState(_failed(run_id, found))
    if found.needed and found.error is not None:
        raise RecoveryFailed(f"run {run_id} needs a recovery ({found.reason}) and did not get one: {found.error}")
    if found.error is not None:
        raise RecoveryFailed(f"it is not known whether run {run_id} needs a recovery: {found.error}")
    if strict and doc.pause is None and not doc.ended and await unread_pause(client, run_id) == "pause":
        said = await client.resume(run_id)  # else the run would pause after a person has asked it to continue
        return ResumedRun(run_id=run_id, done=said.done, text=said.text, recovery=recovery)
    if doc.pause is None and found.needed:
        text = f"it was {done_text(found.action)} ({found.reason})"
        return ResumedRun(run_id=run_id, done=True, text=text, outcome="recovered", recovery=recovery)
    if doc.pause is None and doc.status is Status.AWAITING_INPUT:
        return ResumedRun(run_id=run_id, done=False, text=_AWAITS, outcome="awaits_answer")
    due = record.due_at is not None and record.due_at <= await client.store.now()
    if doc.pause is None and not doc.ended and (due or not strict):
        return ResumedRun(run_id=run_id, done=False, text=_queued(doc), outcome="queued")
    if doc.pause is None and not doc.ended:
        does = f"runner {record.holder} has it" if record.holder is not None else "it waits, and continues by itself"
        raise WrongState(f"run {run_id} is not paused, it is {doc.status}: {does}; see `buoy why {run_id}`")
    if doc.pause is not None and doc.pause.reason == "poison":
        why = f": {doc.pause.detail}" if doc.pause.detail else ""
        raise WrongState(
            f"run {run_id} is in quarantine{why}; correct the cause, then release it: buoy release {run_id}"
        )
    said = await client.resume(run_id)
    return ResumedRun(run_id=run_id, done=said.done, text=said.text, recovery=recovery)


def _failed(run_id: RunId, found: Recovery) -> str:
    retry = f"`buoy retry {run_id}` tries it again"
    if found.action == "fail":
        return f"run {run_id} was ended as failed, not resumed, since its policy is fail ({found.reason}); {retry}"
    return f"run {run_id} has failed; {retry}"


def _missing(facts: Facts, words: Wording) -> str | None:
    """Why no worker takes a run that could continue, and what to start. A waiting run needs no worker yet."""
    doc = facts.document
    waits = doc.status in RESTING and (facts.due_at is None or facts.due_at > facts.now)
    if doc.ended or doc.pause is not None or waits or facts.live_owner:
        return None
    missing = what_is_missing(doc, facts.runners)
    return None if missing is None else f"{missing}; {take_up(facts, words)[0].line}"


def _queued(doc: Document) -> str:
    return f"it is {doc.status} and queued already: it continues as soon as a worker that knows {doc.workflow} takes it"


async def release_run(client: Client, run_id: str, words: Wording) -> ReleasedRun:
    """Continues a run that Buoy quarantined or held."""
    doc = (await client.record(run_id)).document
    pause = doc.pause
    if pause is None:
        raise WrongState(f"run {run_id} is neither quarantined nor held; it is {doc.status}")
    if pause.reason == "user":
        raise WrongState(f"run {run_id} was paused by {pause.by or 'a person'}; continue it: buoy resume {run_id}")
    said = await client.resume(run_id)
    facts = (await examine(client, doc.run_id)).facts
    why = f"{pause.reason}{': ' + pause.detail if pause.detail else ''}"
    return ReleasedRun(run_id, said.done, said.text, why, _missing(facts, words))
