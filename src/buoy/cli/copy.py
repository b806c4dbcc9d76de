"""`buoy copy`: move runs from one store to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from tempfile import TemporaryDirectory

import click
import msgspec

from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, check_store, go, shared_options
from buoy.config import person
from buoy.core.log.wording import counted
from buoy.errors import BadInput, StoreUnusable
from buoy.operations.maintenance.copy_records import CopiedSchedule, copy_schedules, copy_tombstones
from buoy.operations.maintenance.copy_runs import CopiedRun, copy_all, copy_run
from buoy.wiring.app import open_client

_PROGRESS = 50


class Copied(msgspec.Struct, frozen=True):
    """What a copy did."""

    runs: tuple[CopiedRun, ...]
    schedules: tuple[CopiedSchedule, ...]
    dry_run: bool
    # Ids of purged runs that the target did not know.
    tombstones: int = 0


@click.command("copy")
@click.option("--from", "source", metavar="URL", help="The store that the runs are in; else --store.")
@click.option("--to", "target", metavar="URL", required=True, help="The store that they move to.")
@click.option("--run", "run_id", metavar="ID", help="One run, with its parents, children and successors.")
@click.option("--all", "everything", is_flag=True, help="All runs, schedules and tombstones of purged runs.")
@click.option("--dry-run", is_flag=True, help="Check everything and change nothing.")
@shared_options
def copy_command(
    source: str | None,
    target: str,
    run_id: str | None,
    everything: bool,
    dry_run: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Move runs from one store to another, with their logs, inboxes and ids.

    Each run is first ended in the source by an event that names the target, so that it never executes in both. Later
    messages to the source are refused with the new address. Steps that are under way there execute again in the
    target. After an interruption, give the same command again. With --all, runs that moved elsewhere before are
    skipped. A dry run makes no local store; a bucket that has never been used is probed.

    \b
    Example:
      buoy copy --from sqlite:///runs.db --to s3://bucket/runs --all

    Exit code: 0 copied, 2 bad input, or a run cannot be copied or was left, 5 store unusable.
    """
    if (run_id is None) != everything:
        raise BadInput("which runs is not clear: give either --run ID or --all")
    shown = _quiet if as_json else _say
    here = check_store(source or store)
    with _standing_in(target) if dry_run else nullcontext(target) as there:
        done = go(_copied(here, there, run_id, dry_run, shown))
    if as_json:
        print_json(done)
        return _code(done)
    say(_summary(done), err=True)
    return _code(done)


def _summary(done: Copied) -> str:
    states = Counter(each.state for each in done.runs)
    verb, new = ("would move", states["would_move"]) if done.dry_run else ("moved", states["moved"])
    parts = [f"{counted(new, 'run')} {verb}, {counted(states['complete'], 'run')} there already"]
    if states["elsewhere"]:
        parts.append(f"{counted(states['elsewhere'], 'run')} moved elsewhere before")
    if states["left"]:
        parts.append(f"{counted(states['left'], 'run')} left, since others of the family moved elsewhere")
    if done.schedules:
        parts.append(counted(len(done.schedules), "schedule"))
    if done.tombstones:
        parts.append(counted(done.tombstones, "tombstone"))
    return "; ".join(parts)


def _code(done: Copied) -> Exit:
    return Exit.BAD_INPUT if any(each.state == "left" for each in done.runs) else Exit.OK


@contextmanager
def _standing_in(target: str) -> Iterator[str]:
    """The target. An empty store takes the place of a local one that is not there: a dry run makes none."""
    with TemporaryDirectory(prefix="buoy-copy-") as folder:
        there = f"sqlite:///{folder}/empty.db"
        with suppress(StoreUnusable):
            there = check_store(target)
        yield there


async def _copied(
    source: str, target: str, run_id: str | None, dry_run: bool, say: Callable[[CopiedRun, int], None]
) -> Copied:
    runs: list[CopiedRun] = []
    schedules: list[CopiedSchedule] = []
    tombstones = 0
    async with open_client(source, actor=person()) as here, open_client(target, actor=person()) as there:
        if run_id is not None:
            for each in await copy_run(here, there, run_id, dry_run=dry_run):
                runs.append(each)
                say(each, len(runs))
        else:
            # Schedules first: the source starts no more runs while its runs move.
            schedules = await copy_schedules(here, there, dry_run=dry_run)
            tombstones = await copy_tombstones(here, there, dry_run=dry_run)
            async for each in copy_all(here, there, dry_run=dry_run):
                runs.append(each)
                say(each, len(runs))
    return Copied(tuple(runs), tuple(schedules), dry_run, tombstones)


def _say(copied: CopiedRun, number: int) -> None:
    if copied.state == "elsewhere":
        say(f"{copied.run_id}: skipped, moved to {copied.to} before", err=True)
    elif copied.state == "left":
        advice = f"part of its family moved to {copied.to}: copy it there"
        say(f"{copied.run_id}: left, {advice} with --run {copied.run_id}", err=True)
    elif number <= _PROGRESS:
        what = f"{counted(copied.events, 'event')}, {counted(copied.messages, 'message')}"
        say(f"{copied.run_id}: {copied.state.replace('_', ' ')}, {what}")
    elif number % _PROGRESS == 0:
        say(f"{number:,} runs so far", err=True)


def _quiet(copied: CopiedRun, number: int) -> None:
    """JSON comes at the end."""
