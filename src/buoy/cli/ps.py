"""`buoy ps`: lists runs without touching them."""

from __future__ import annotations

import shutil
import sys

import click
from msgspec.structs import replace

from buoy.cli.terminal import render
from buoy.cli.terminal.filters import Filters, run_filters
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, go, inspected, shared_options, wording
from buoy.cli.terminal.run_ids import meant_run
from buoy.cli.terminal.run_table import run_lines
from buoy.cli.terminal.run_view import run_view
from buoy.config import colours_wanted
from buoy.core.diagnosis.facts import Facts
from buoy.core.limits import RUNS_PAGE_MAX
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.wording import counted
from buoy.ports.records import Broken, RunPage
from buoy.recovery.evidence import facts_of_page, read_fleet

_NOT_ENDED = tuple(sorted(set(Status) - TERMINAL))


@click.command()
@click.option("--all", "everything", is_flag=True, help="Ended runs, too.")
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice([each.value for each in Status]), help="May be repeated."
)
@run_filters
@click.option("--limit", type=click.IntRange(1, RUNS_PAGE_MAX), default=50, show_default=True, help="Runs per page.")
@click.option("--cursor", metavar="CURSOR", help="Go on where the last page ended.")
@click.option("--wide", is_flag=True, help="Show all columns in full, however narrow the terminal is.")
@shared_options
def ps(
    everything: bool,
    statuses: tuple[str, ...],
    filters: Filters,
    limit: int,
    cursor: str | None,
    wide: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """List runs, newest first: those that have not ended, unless told otherwise.

    On a terminal the columns that matter least go first if there is no place for all of them. Ids are shown in full;
    every command that takes a RUN, but for purge, also takes the beginning of an id, as long as no other id begins so.
    Runs that cannot be read are named with the reason, whatever their status is.

    \b
    Example:
      buoy ps --status awaiting_input --workflow order

    Exit code: 0 listed, 2 bad input, 5 store unusable.
    """
    wanted = statuses or (() if everything else _NOT_ENDED)
    page, found = go(_listed(wanted, filters, cursor, limit, store))
    if as_json:
        broken = {"broken": page.broken} if page.broken else {}
        print_json({"runs": [run_view(each) for each in found], "cursor": page.cursor, **broken})
        return Exit.OK
    if not found and not page.broken:
        click.echo("no runs" if everything or statuses else "no runs under way; `buoy ps --all` lists the ended ones")
        return Exit.OK
    if found:
        _print_runs(found, wide=wide)
    _print_broken(page.broken, store)
    if page.cursor is not None:
        click.echo(f"more: --cursor {page.cursor}", err=True)
    return Exit.OK


def _print_broken(broken: tuple[Broken, ...], store: str | None) -> None:
    for one in broken:
        click.echo(f"{one.id}  cannot be read: {one.reason}", err=True)
    if broken:
        about = wording(store, render.local).command("why", broken[0].id)
        click.echo(f"{counted(len(broken), 'run')} cannot be read; what to do: {about}", err=True)


async def _listed(
    statuses: tuple[str, ...], filters: Filters, cursor: str | None, limit: int, store: str | None
) -> tuple[RunPage, list[Facts]]:
    async with inspected(store) as found:
        if filters.parent is not None:
            filters = replace(filters, parent=await meant_run(found.store, filters.parent))
        page = await found.store.find_runs(filters.query(statuses, found.clock.now()), cursor, limit)
        fleet = await read_fleet(found.store, found.liveness)
        return page, await facts_of_page(found.store, fleet, page.runs)


def _print_runs(found: list[Facts], *, wide: bool) -> None:
    width = None if wide or not sys.stdout.isatty() else shutil.get_terminal_size().columns
    for line in run_lines(found, width):
        # A line that is too long even so is wrapped by the terminal: nothing of it is lost.
        click.echo(line, color=None if colours_wanted() else False)
