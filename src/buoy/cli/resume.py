"""`buoy resume`: continue runs that were paused or left behind."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.run_ids import run_arguments
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import local
from buoy.core.explain.phrases import Wording, answer_words
from buoy.core.ids import RunId
from buoy.core.log.wording import counted
from buoy.errors import BadInput
from buoy.operations.control.resume import (
    AbandonedRuns,
    ResumedRun,
    ResumedRuns,
    abandoned_runs,
    resume_abandoned,
    resume_run,
)


@click.command()
@run_arguments
@click.option("--all", "every", is_flag=True, help="Continue all runs that were left behind.")
@shared_options
def resume(run_ids: tuple[str, ...], every: bool, store: str | None, as_json: bool) -> int:
    """Continue paused runs, and runs that dead or stopped processes left behind.

    Without a RUN, only lists the runs that were left behind. Each run is checked first, and recovered if it needs it.
    If a run waits for an answer, its question is shown. A worker executes the run; if none is alive, the command that
    starts one is shown.

    \b
    Example:
      buoy resume
      buoy resume order-1
      buoy resume --all

    Exit code: 0 done, requested or listed, 1 with --all: some runs were refused, 2 not possible, 5 store unusable.
    """
    if run_ids and every:
        raise BadInput("both RUN and --all were given; give one of them")
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
            _print_resumed(each, words)
    return Exit.OK


def _list(store: str | None, *, as_json: bool) -> int:
    found = go(_lost(store))
    if as_json:
        print_json(found)
        return Exit.OK
    for each in found.runs:
        say(f"{each.run_id}  {each.status}  {each.why}")
    again = wording(store, local).command("resume", "--all")
    some = f"; bring them back: {again}" if found.runs else ""
    say(f"{counted(len(found.runs), 'run')} left behind{some}", err=True)
    _say_if_unserved(served=found.worker_alive or not found.runs, store=store)
    return Exit.OK


async def _lost(store: str | None) -> AbandonedRuns:
    async with connected(store) as client:
        return await abandoned_runs(client)


def _say_if_unserved(*, served: bool, store: str | None) -> None:
    if not served:
        worker = wording(store, local).command("worker", "FILE.py")
        say(f"no worker is alive; start one to continue: {worker}", err=True)


def _say_how_to_execute(done: tuple[ResumedRun, ...], store: str | None, *, served: bool) -> None:
    """A resumed run is only queued: shows the commands that execute it."""
    commands = dict.fromkeys(each.execute for each in done if each.execute is not None)
    for command in commands:
        say(f"execute them now, until nothing is due: {command}", err=True)
    if commands and not served:
        unit = wording(store, local).command("service", "--worker", "FILE.py")
        say(f"have this machine execute them after every reboot: {unit}", err=True)


def _resume_all(store: str | None, *, as_json: bool) -> int:
    done = go(_bring_back(store))
    if as_json:
        print_json(done)
        return _code(done)
    for each in done.runs:
        say(f"{each.run_id}: {each.text}")
        if done.worker_alive and each.missing is not None:
            say(f"nothing happens yet: {each.missing}", err=True)
    say(f"{counted(sum(each.done for each in done.runs), 'run')} brought back", err=True)
    _say_if_unserved(served=done.worker_alive or not done.runs, store=store)
    _say_how_to_execute(done.runs, store, served=done.worker_alive)
    return _code(done)


def _code(done: ResumedRuns) -> int:
    return Exit.FAILED if done.failed else Exit.OK


async def _bring_back(store: str | None) -> ResumedRuns:
    async with connected(store) as client:
        return await resume_abandoned(client, wording(store, local))


async def _resume(run_id: str, store: str | None, words: Wording) -> ResumedRun:
    async with connected(store) as client:
        return await resume_run(client, RunId(run_id), words)


def _print_resumed(done: ResumedRun, words: Wording) -> None:
    say(done.text if done.outcome == "asked" else f"run {done.run_id}: {done.text}")
    if done.missing is not None:
        say(f"nothing happens yet: {done.missing}", err=True)
    for leaf in done.questions:
        if leaf.question is not None and leaf.question_id is not None:
            command = words.command("answer", done.run_id, *answer_words(leaf.question), "--question", leaf.question_id)
            say(f"it asks: {leaf.name}\nanswer it with: {command}")
