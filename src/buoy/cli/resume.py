"""`buoy resume` and `buoy release`: let runs go on that were left behind, paused or quarantined.

Invariants: recovery is checked first. What is said about a run that now waits for a worker names what is missing: a run
that nobody can take is not "running", whatever its status is.
"""

from __future__ import annotations

from typing import Literal

import click
import msgspec
from msgspec.structs import replace

from buoy.cli.recover import done_text, recovery_fields, strike_off
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.cli.terminal.run_ids import run_argument, run_arguments
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.takers import what_is_missing
from buoy.core.explain.narrative import answered, start_worker, take_up
from buoy.core.explain.phrases import Wording, answer_words, questions
from buoy.core.ids import RunId
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.lifecycle import RESTING, Status
from buoy.core.log.wording import counted
from buoy.engine.client.client import Client
from buoy.engine.client.requests import Requested
from buoy.errors import BadInput, Problem, WrongState
from buoy.operations.resume import AbandonedRun, lost_runs
from buoy.recovery.evidence import read_fleet
from buoy.recovery.recover import Recovery, examine, recover_run

_AWAITS = "it awaits an answer"


class Resumed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `buoy resume` did with one run, and what it asks now."""

    run_id: str
    done: bool
    text: str
    # What was found or done: `asked` of the run itself, whose text then says so by itself.
    outcome: Literal["asked", "recovered", "awaits_answer", "queued", "refused"] = "asked"
    recovery: dict[str, object] | None = None
    questions: tuple[OpenLeaf, ...] = ()
    # Why it does not go on yet though it could, and what to start.
    missing: str | None = None
    # If so: the command that executes it, and ends when nothing is due.
    execute: str | None = None
    error: str | None = None


@click.command()
@run_arguments
@click.option("--all", "every", is_flag=True, help="All runs that were left behind.")
@shared_options
def resume(run_ids: tuple[str, ...], every: bool, store: str | None, as_json: bool) -> int:
    """Let runs go on: paused ones, and those that dead or stopped processes left behind.

    Without a RUN, lists what was left behind and does nothing. Whether a run needs a recovery is checked first. A run
    that waits for an answer shows its question. Nothing is executed here: a worker does that; if none is alive, the
    command that executes is shown.

    \b
    Example:
      buoy resume
      buoy resume order-1
      buoy resume --all

    Exit code: 0 done, asked for or listed, 1 with --all: some could not be, 2 not possible, 5 store unusable.
    """
    if run_ids and every:
        raise BadInput("name runs, or say --all, not both")
    if not run_ids and not every:
        return _list(store, as_json=as_json)
    if every:
        return _resume_all(store, as_json=as_json)
    words = wording(store, local)
    done = [go(_resume(run_id, store, words)) for run_id in run_ids]
    if as_json:
        print_json(done[0] if len(done) == 1 else {"runs": done})
    else:
        for each in done:
            _tell(each, words)
    return Exit.OK


def _list(store: str | None, *, as_json: bool) -> int:
    found, served = go(_lost(store))
    if as_json:
        print_json({"runs": found, "worker_alive": served})
        return Exit.OK
    for each in found:
        click.echo(f"{each.run_id}  {each.status}  {each.why}")
    again = wording(store, local).command("resume", "--all")
    click.echo(f"{counted(len(found), 'run')} left behind" + (f"; bring them back: {again}" if found else ""), err=True)
    _say_if_unserved(served=served or not found, store=store)
    return Exit.OK


async def _lost(store: str | None) -> tuple[list[AbandonedRun], bool]:
    async with connected(store) as client:
        return [each async for each in lost_runs(client)], await _served(client)


async def _served(client: Client) -> bool:
    """Whether some worker is alive."""
    fleet = await read_fleet(client.store, client.liveness)
    return any(each.role == "worker" for each in fleet.living)


def _say_if_unserved(*, served: bool, store: str | None) -> None:
    if not served:
        worker = wording(store, local).command("worker", "FILE.py")
        click.echo(f"no worker is alive, so nothing goes on before one is started: {worker}", err=True)


def _say_how_to_execute(done: list[Resumed], store: str | None, *, served: bool) -> None:
    """To be brought back is to be queued: nothing executes here."""
    commands = dict.fromkeys(each.execute for each in done if each.execute is not None)
    for command in commands:
        click.echo(f"execute them now, until nothing is due: {command}", err=True)
    if commands and not served:
        unit = wording(store, local).command("service", "--worker", "FILE.py")
        click.echo(f"have this machine execute them after every reboot: {unit}", err=True)


def _resume_all(store: str | None, *, as_json: bool) -> int:
    done, served = go(_bring_back(store))
    if as_json:
        print_json({"runs": done, "worker_alive": served})
    else:
        for each in done:
            click.echo(f"{each.run_id}: {each.text}")
            if served and each.missing is not None:
                click.echo(f"nothing happens yet: {each.missing}", err=True)
        click.echo(f"{counted(sum(each.done for each in done), 'run')} brought back", err=True)
        _say_if_unserved(served=served or not done, store=store)
        _say_how_to_execute(done, store, served=served)
    return Exit.FAILED if any(each.error is not None for each in done) else Exit.OK


async def _bring_back(store: str | None) -> tuple[list[Resumed], bool]:
    words = wording(store, local)
    async with connected(store) as client:
        found = [each async for each in lost_runs(client)]
        return [await _try(client, each, words) for each in found], await _served(client)


async def _try(client: Client, lost: AbandonedRun, words: Wording) -> Resumed:
    """One of many: what cannot be done is told, and the others are seen to all the same."""
    if lost.broken:
        return Resumed(run_id=lost.run_id, done=False, text=lost.why, outcome="refused", error=lost.why)
    try:
        return await _go_on(client, lost.run_id, words, strict=False)
    except Problem as error:
        return Resumed(run_id=lost.run_id, done=False, text=str(error), outcome="refused", error=str(error))


async def _resume(run_id: str, store: str | None, words: Wording) -> Resumed:
    async with connected(store) as client:
        return await _go_on(client, RunId(run_id), words, strict=True)


async def _go_on(client: Client, run_id: RunId, words: Wording, *, strict: bool) -> Resumed:
    """Recovery first, then the run goes on, then its question. `strict`: one that needs neither is refused."""
    holder = (await client.record(run_id)).holder
    mended = await recover_run(client, run_id)
    if holder is not None:
        await strike_off(client, holder)
    done = await _moved(client, run_id, mended, strict=strict)
    facts = (await examine(client, run_id)).facts
    left = set(answered(facts))
    asked = tuple(each for each in questions(facts.document) if each.question_id not in left)
    if not asked and done.outcome == "awaits_answer":
        done = replace(done, text="its answer is there, and not taken up yet")
    missing = _missing(facts, words)
    execute = None if missing is None else start_worker(facts, words, "--until-idle").typed
    return replace(done, questions=asked, missing=missing, execute=execute)


async def _moved(client: Client, run_id: RunId, mended: Recovery, *, strict: bool) -> Resumed:
    """What was done to let it go on."""
    record = await client.record(run_id)
    doc = record.document
    told = recovery_fields(mended) if mended.needed else None
    if doc.status is Status.FAILED:
        raise WrongState(_failed(run_id, mended))
    if mended.needed and mended.error is not None:
        raise WrongState(f"run {run_id} needs a recovery ({mended.reason}) and did not get one: {mended.error}")
    if doc.pause is None and mended.needed:
        text = f"it was {done_text(mended.action)} ({mended.reason})"
        return Resumed(run_id=run_id, done=True, text=text, outcome="recovered", recovery=told)
    if doc.pause is None and doc.status is Status.AWAITING_INPUT:
        return Resumed(run_id=run_id, done=False, text=_AWAITS, outcome="awaits_answer")
    due = record.due_at is not None and record.due_at <= await client.store.now()
    if doc.pause is None and not doc.ended and (due or not strict):
        return Resumed(run_id=run_id, done=False, text=_queued(doc), outcome="queued")
    if doc.pause is None and not doc.ended:
        does = f"runner {record.holder} has it" if record.holder is not None else "it waits, and goes on by itself"
        raise WrongState(f"run {run_id} is not paused, it is {doc.status}: {does}; `buoy why {run_id}` tells more")
    if doc.pause is not None and doc.pause.reason == "poison":
        why = f": {doc.pause.detail}" if doc.pause.detail else ""
        raise WrongState(
            f"run {run_id} is in quarantine{why}; correct the cause, then let it go on: buoy release {run_id}"
        )
    said = await client.resume(run_id)
    return Resumed(run_id=run_id, done=said.done, text=said.text, recovery=told)


def _failed(run_id: RunId, mended: Recovery) -> str:
    retry = f"`buoy retry {run_id}` tries it again"
    if mended.action == "fail":
        return f"run {run_id} was ended as failed, not resumed, since its policy is fail ({mended.reason}); {retry}"
    return f"run {run_id} has failed; {retry}"


def _missing(facts: Facts, words: Wording) -> str | None:
    """Why nobody takes a run that could go on, and what to start. A wait needs nobody yet."""
    doc = facts.document
    waits = doc.status in RESTING and (facts.due_at is None or facts.due_at > facts.now)
    if doc.ended or doc.pause is not None or waits or facts.live_owner:
        return None
    missing = what_is_missing(doc, facts.runners)
    return None if missing is None else f"{missing}; {take_up(facts, words)[0].line}"


def _queued(doc: Document) -> str:
    return f"it is {doc.status} and queued already: it goes on as soon as a worker that knows {doc.workflow} takes it"


def _tell(done: Resumed, words: Wording) -> None:
    click.echo(done.text if done.outcome == "asked" else f"run {done.run_id}: {done.text}")
    if done.missing is not None:
        click.echo(f"nothing happens yet: {done.missing}", err=True)
    for leaf in done.questions:
        if leaf.question is not None and leaf.question_id is not None:
            command = words.command("answer", done.run_id, *answer_words(leaf.question), "--question", leaf.question_id)
            click.echo(f"it asks: {leaf.name}\nanswer it with: {command}")


@click.command()
@run_argument
@shared_options
def release(run_id: str, store: str | None, as_json: bool) -> int:
    """Let a run go on that Buoy quarantined or held.

    A run that ended the processes that drove it, again and again, is quarantined; its crashes are counted anew from
    here on. Correct the cause first: `buoy why RUN` names it.

    \b
    Example:
      buoy release order-1

    Exit code: 0 done or asked for, 2 it is not held, 5 store unusable.
    """
    found, why, missing = go(_release(run_id, store))
    if as_json:
        more = {} if missing is None else {"missing": missing}
        print_json({"run_id": run_id, "done": found.done, "text": found.text, "was": why, **more})
        return Exit.OK
    click.echo(f"{found.text} (was held: {why})")
    if missing is not None:
        click.echo(f"nothing happens yet: {missing}", err=True)
    return Exit.OK


async def _release(run_id: str, store: str | None) -> tuple[Requested, str, str | None]:
    async with connected(store) as client:
        doc = (await client.record(run_id)).document
        pause = doc.pause
        if pause is None:
            raise WrongState(f"run {run_id} is neither quarantined nor held; it is {doc.status}")
        if pause.reason == "user":
            raise WrongState(f"run {run_id} was paused by {pause.by or 'somebody'}; let it go on: buoy resume {run_id}")
        said = await client.resume(run_id)
        facts = (await examine(client, doc.run_id)).facts
        why = f"{pause.reason}{': ' + pause.detail if pause.detail else ''}"
        return said, why, _missing(facts, wording(store, local))
