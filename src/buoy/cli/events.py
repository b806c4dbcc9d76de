"""`buoy events`: the log of a run, as it is or as it grows."""

from __future__ import annotations

import click

from buoy.cli.terminal import render
from buoy.cli.terminal.lines.events import describe
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import json_line, print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.core.limits import EVENTS_PAGE
from buoy.core.log.events import Event
from buoy.operations.inspect.run_log import LogPage, follow_log, log_page


@click.command()
@run_argument
@click.option("--follow", "-f", is_flag=True, help="Also print new events, until the run ends.")
@click.option(
    "--after", type=click.IntRange(0), default=0, show_default=True, help="Print only events after this number."
)
@click.option("--limit", type=click.IntRange(1, EVENTS_PAGE), help="Print at most this many events.")
@shared_options
def events(run_id: str, follow: bool, after: int, limit: int | None, store: str | None, as_json: bool) -> int:
    """Print the log of a run. With --follow and --json: one JSON document per line.

    \b
    Example:
      buoy events order-1 --follow

    Exit code: 0 printed, 1 events are missing or cannot be read, 2 no such run, 5 store unusable.
    """
    if follow:
        go(_follow(run_id, after, limit, store, as_json=as_json))
        return Exit.OK
    found = go(_events(run_id, after, limit or EVENTS_PAGE, store))
    if as_json:
        print_json(found)
    else:
        for event in found.events:
            _print_event(event, as_json=False)
        if limit is None and len(found.events) == EVENTS_PAGE:
            click.echo(f"more: --after {found.events[-1].seq}", err=True)
    for first, last in found.missing:
        what = f"event {first} is" if first == last else f"events {first} to {last} are"
        click.echo(f"warning: {what} missing; see {wording(store, render.local).command('why', run_id)}", err=True)
    return Exit.FAILED if found.missing else Exit.OK


async def _events(run_id: str, after: int, limit: int, store: str | None) -> LogPage:
    async with connected(store) as client:
        return await log_page(client, run_id, after, limit)


async def _follow(run_id: str, after: int, limit: int | None, store: str | None, *, as_json: bool) -> None:
    async with connected(store) as client:
        shown = 0
        async for event in follow_log(client, run_id, after):
            _print_event(event, as_json=as_json)
            shown += 1
            if shown == limit:
                return


def _print_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_line(event))
    else:
        say(f"{event.seq:>5}  {render.clock(event.at)}  {event.type:<22} {describe(event.body)}".rstrip())
