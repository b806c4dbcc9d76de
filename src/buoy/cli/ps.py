"""`buoy ps`: lists runs without touching them."""

from __future__ import annotations

import shutil
import sys

import click
from msgspec.structs import replace

from buoy.cli.terminal import render
from buoy.cli.terminal.lines.run_table import run_lines
from buoy.cli.terminal.options.runs import run_filters
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, go, inspected, shared_options, wording
from buoy.config import colours_wanted
from buoy.core.diagnosis.facts import Facts
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log.wording import counted
from buoy.operations.inspect.runs import NOT_ENDED, FoundRuns, RunFilter, list_runs


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include runs that have ended.")
@run_filters
@click.option("--limit", type=click.IntRange(1, RUNS_PAGE_MAX), default=50, show_default=True, help="Runs per page.")
@click.option("--cursor", metavar="CURSOR", help="Continue where the last page ended.")
@click.option("--wide", is_flag=True, help="Show all columns in full, on any terminal.")
@shared_options
def ps(
    everything: bool,
    filters: RunFilter,
    limit: int,
    cursor: str | None,
    wide: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """List runs, newest first. By default only those that have not ended.

    A narrow terminal drops the least important columns. Ids are shown in full. Every command that takes a RUN, except
    purge, also accepts a unique prefix of an id. Runs that cannot be read are always listed, with the reason. Lots of
    batch runs are listed only with --parent or --workflow.

    \b
    Example:
      buoy ps --status awaiting_input --workflow order

    Exit code: 0 listed, 2 bad input, 5 store unusable.
    """
    chosen = filters if everything or filters.statuses else replace(filters, statuses=NOT_ENDED)
    if chosen.parent is None and chosen.workflow is None:
        chosen = replace(chosen, lots=False)
    found = go(_listed(chosen, cursor, limit, store))
    if as_json:
        print_json(found.listed())
        return Exit.OK
    if not found.facts and not found.broken:
        text = "no runs" if everything or filters.statuses else "no active runs; `buoy ps --all` lists the ended ones"
        click.echo(text)
        return Exit.OK
    if found.facts:
        _print_runs(found.facts, wide=wide)
    _print_broken(found, store)
    if found.cursor is not None:
        click.echo(f"more: --cursor {found.cursor}", err=True)
    return Exit.OK


def _print_broken(found: FoundRuns, store: str | None) -> None:
    for one in found.broken:
        say(f"{one.id}  cannot be read: {one.reason}", err=True)
    if found.broken:
        about = wording(store, render.local).command("why", found.broken[0].id)
        click.echo(f"{counted(len(found.broken), 'run')} cannot be read; what to do: {about}", err=True)


async def _listed(chosen: RunFilter, cursor: str | None, limit: int, store: str | None) -> FoundRuns:
    async with inspected(store) as at:
        return await list_runs(at, chosen, cursor=cursor, limit=limit)


def _print_runs(found: tuple[Facts, ...], *, wide: bool) -> None:
    width = None if wide or not sys.stdout.isatty() else shutil.get_terminal_size().columns
    for line in run_lines(found, width):
        # A line that is too long even so is wrapped by the terminal: nothing of it is lost.
        click.echo(line, color=None if colours_wanted() else False)
