"""`buoy recover`, `buoy resume` and `buoy release`: bring runs back.

Invariants: a run that a living process drives is left alone. What would be done is shown by `--dry-run`, before it is.
"""

from __future__ import annotations

import click
import msgspec

from buoy.cli.output import print_json
from buoy.cli.program import Exit, connected, go, shared_options, wording
from buoy.cli.render import local
from buoy.core.document import Document, OpenLeaf
from buoy.core.ids import RunId
from buoy.core.lifecycle import Status
from buoy.core.phrases import Wording, answer_words, counted, questions
from buoy.core.told import answered
from buoy.engine.client import Client
from buoy.engine.requests import Requested
from buoy.errors import BadInput, Problem, WrongState
from buoy.recovery.evidence import crew
from buoy.recovery.recover import Recovery, examine, recover_run
from buoy.recovery.resuming import Lost, lost_runs

_SHOWN_MAX = 20


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--dry-run", is_flag=True, help="Only show the branch, what is kept and what would run again.")
@shared_options
def recover(run_id: str, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Check a run, and bring it back if something is wrong with it.

    Nothing is removed: where the past must be hidden, the run goes on on a new branch of its log. Completed steps that
    are kept are not executed again. A run that a living process drives is left alone.

    \b
    Example:
      buoy recover order-1 --dry-run

    Exit code: 0 nothing is wrong, or it was recovered, 1 it could not be, 2 no such run, 5 store unusable.
    """
    found = go(_recover(run_id, store, dry_run=dry_run))
    if as_json:
        print_json({"dry_run": dry_run, **_fields(found)})
    else:
        click.echo("\n".join(_lines(found, wording(store, local), dry_run=dry_run)))
    return Exit.FAILED if found.error is not None else Exit.OK


async def _recover(run_id: str, store: str | None, *, dry_run: bool) -> Recovery:
    async with connected(store) as client:
        return await recover_run(client, run_id, dry_run=dry_run)


def _fields(found: Recovery) -> dict[str, object]:
    plan = found.plan
    shown: dict[str, object] = {
        name: getattr(found, name)
        for name in ("run_id", "needed", "new_branch_id", "reason", "error", "note", "action")
    }
    shown["findings"] = found.findings
    if plan is not None:
        names = ("branch", "parent", "cutoff_seq", "kept", "dropped", "again")
        shown["plan"] = {name: getattr(plan, name) for name in names}
    return shown


def _lines(found: Recovery, words: Wording, *, dry_run: bool) -> list[str]:
    if not found.needed and found.error is None:
        return [f"run {found.run_id} needs no recovery{_because(found)}", *_other_way(found, words)]
    lines = [f"run {found.run_id}: {found.reason}"] if found.reason else [f"run {found.run_id}"]
    plan = found.plan
    if plan is not None:
        would = "would be " if dry_run else "was "
        lines.append(f"  remedy:     it {would}{_done(found.action)}")
        if plan.branch is not None:
            cut = plan.cutoff_seq or 0
            kept = f"what ended up to event {cut}" if cut else "nothing of what happened"
            lines.append(f"  new branch: {plan.branch}, from branch {plan.parent}, cut after event {cut}")
            lines.append(f"  is kept:    {kept}" + (f", and {_some(plan.kept)}" if plan.kept else ""))
            lines.append(f"  is dropped: {_some(plan.dropped)}")
        lines.append(f"  runs again: {_some(plan.again)}")
    if found.error is not None:
        lines.append(f"  not done:   {found.error}")
    if found.note is not None:
        lines.append(f"  left:       {found.note}")
    return lines


def _because(found: Recovery) -> str:
    """Why nothing is to be recovered."""
    doc = found.document
    if doc is not None and doc.ended:
        return f": it is {doc.status}"
    if doc is not None and doc.pause is not None:
        return f": it is paused ({doc.pause.reason}{': ' + doc.pause.detail if doc.pause.detail else ''})"
    if found.note is not None:
        return f", but it does not go on either: {found.note}"
    healthy = "; ".join(f"{each.code}: {each.reason}" for each in found.findings[:3])
    return f": {healthy}" if healthy else ""


def _other_way(found: Recovery, words: Wording) -> list[str]:
    """What does lead on, where a recovery is not it."""
    doc = found.document
    if doc is not None and doc.status is Status.FAILED:
        return [f"try it again: {words.command('retry', found.run_id)}"]
    if doc is not None and doc.pause is not None:
        verb = "release" if doc.pause.reason == "poison" else "resume"
        return [f"let it go on: {words.command(verb, found.run_id)}"]
    return [] if found.note is None else [f"see why: {words.command('why', found.run_id)}"]


def _done(action: str) -> str:
    return {
        "resume": "put back into its queue, to go on",
        "retry": "put back into its queue, to run the failed step again",
        "compensate": "put back into its queue, to undo what is done and fail",
        "restart": "restarted from the beginning",
        "fail": "failed",
        "hold": "held for a person",
        "quarantine": "quarantined",
    }.get(action, action)


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_SHOWN_MAX]) or "nothing"
    return shown if len(names) <= _SHOWN_MAX else f"{shown} and {len(names) - _SHOWN_MAX} more"


class Resumed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `buoy resume` did with one run, and what it asks now."""

    run_id: str
    done: bool
    text: str
    recovery: dict[str, object] | None = None
    questions: tuple[OpenLeaf, ...] = ()
    error: str | None = None


@click.command()
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All runs that were left behind.")
@shared_options
def resume(run_ids: tuple[str, ...], every: bool, store: str | None, as_json: bool) -> int:
    """Let runs go on: paused ones, and those that dead or stopped processes left behind.

    Without a RUN, lists what was left behind and does nothing. Whether a run needs a recovery is checked first. A run
    that waits for an answer shows its question.

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
    done = [go(_resume(run_id, store)) for run_id in run_ids]
    if as_json:
        print_json(done[0] if len(done) == 1 else {"runs": done})
    else:
        for each in done:
            _tell(each, wording(store, local))
    return Exit.OK


def _list(store: str | None, *, as_json: bool) -> int:
    found, served = go(_lost(store))
    if as_json:
        print_json({"runs": found})
        return Exit.OK
    for each in found:
        click.echo(f"{each.run_id}  {each.status}  {each.why}")
    again = wording(store, local).command("resume", "--all")
    click.echo(f"{counted(len(found), 'run')} left behind" + (f"; bring them back: {again}" if found else ""), err=True)
    _say_if_unserved(served=served or not found, store=store)
    return Exit.OK


async def _lost(store: str | None) -> tuple[list[Lost], bool]:
    async with connected(store) as client:
        return [each async for each in lost_runs(client)], await _served(client)


async def _served(client: Client) -> bool:
    """Whether some worker is alive."""
    people = await crew(client.store, client.liveness)
    return any(each.role == "worker" for each in people.living)


def _say_if_unserved(*, served: bool, store: str | None) -> None:
    if not served:
        worker = wording(store, local).command("worker", "FILE.py")
        click.echo(f"no worker is alive, so nothing goes on before one is started: {worker}", err=True)


def _resume_all(store: str | None, *, as_json: bool) -> int:
    done, served = go(_bring_back(store))
    if as_json:
        print_json({"runs": done})
    else:
        for each in done:
            click.echo(f"{each.run_id}: {each.text}")
        click.echo(f"{counted(sum(each.done for each in done), 'run')} brought back", err=True)
        _say_if_unserved(served=served or not done, store=store)
    return Exit.FAILED if any(each.error is not None for each in done) else Exit.OK


async def _bring_back(store: str | None) -> tuple[list[Resumed], bool]:
    async with connected(store) as client:
        found = [each async for each in lost_runs(client)]
        return [await _go_on(client, each.run_id, strict=False) for each in found], await _served(client)


async def _resume(run_id: str, store: str | None) -> Resumed:
    async with connected(store) as client:
        return await _go_on(client, RunId(run_id), strict=True)


async def _go_on(client: Client, run_id: RunId, *, strict: bool) -> Resumed:
    """Recovery first, then the run goes on, then its question. `strict`: one that needs neither is refused."""
    try:
        mended = await recover_run(client, run_id)
        doc = (await client.record(run_id)).document
        asked = await _unanswered(client, doc)
        told = _fields(mended) if mended.needed else None
        if doc.status is Status.FAILED:
            raise WrongState(f"run {run_id} has failed; `buoy retry {run_id}` tries it again")
        if mended.needed and mended.error is not None:
            raise WrongState(f"run {run_id} needs a recovery ({mended.reason}) and did not get one: {mended.error}")
        if doc.pause is None and (mended.needed or doc.status is Status.AWAITING_INPUT):
            text = f"it was {_done(mended.action)} ({mended.reason})" if mended.needed else "it awaits an answer"
            if not asked and not mended.needed:
                text = "its answer is there, and not taken up yet"
            return Resumed(run_id=run_id, done=mended.needed, text=text, recovery=told, questions=asked)
        said = await client.resume(run_id) if strict or doc.pause is not None else Requested(False, _queued(doc))
        asked = await _unanswered(client, (await client.record(run_id)).document)
        return Resumed(run_id=run_id, done=said.done, text=said.text, recovery=told, questions=asked)
    except Problem as error:
        if strict:
            raise
        return Resumed(run_id=run_id, done=False, text=str(error), error=str(error))


async def _unanswered(client: Client, doc: Document) -> tuple[OpenLeaf, ...]:
    """Its open questions; those left out whose answer is on its way."""
    asked = questions(doc)
    if not asked:
        return ()
    examined = await examine(client, doc.run_id)
    done = answered(examined.facts)
    return tuple(each for each in asked if each.question_id not in done)


def _queued(doc: Document) -> str:
    return f"it is {doc.status} and queued already: it goes on as soon as a worker that knows {doc.workflow} takes it"


def _tell(done: Resumed, words: Wording) -> None:
    click.echo(done.text if done.text.startswith(("run ", "requested")) else f"run {done.run_id}: {done.text}")
    for leaf in done.questions:
        if leaf.question is not None and leaf.question_id is not None:
            command = words.command("answer", done.run_id, *answer_words(leaf.question), "--question", leaf.question_id)
            click.echo(f"it asks: {leaf.name}\nanswer it with: {command}")


@click.command()
@click.argument("run_id", metavar="RUN")
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
    found, why = go(_release(run_id, store))
    if as_json:
        print_json({"run_id": run_id, "done": found.done, "text": found.text, "was": why})
    else:
        click.echo(f"{found.text} (was held: {why})")
    return Exit.OK


async def _release(run_id: str, store: str | None) -> tuple[Requested, str]:
    async with connected(store) as client:
        doc = (await client.record(run_id)).document
        pause = doc.pause
        if pause is None:
            raise WrongState(f"run {run_id} is neither quarantined nor held; it is {doc.status}")
        if pause.reason == "user":
            raise WrongState(f"run {run_id} was paused by {pause.by or 'somebody'}; let it go on: buoy resume {run_id}")
        return await client.resume(run_id), f"{pause.reason}{': ' + pause.detail if pause.detail else ''}"
