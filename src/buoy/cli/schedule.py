"""`buoy schedule`: start runs by the clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from buoy.cli.terminal import render
from buoy.cli.terminal.options.targets import named_target, param_option
from buoy.cli.terminal.output import print_json, results_alone, say
from buoy.cli.terminal.program import Exit, calls_option, connected, duration, go, shared_options
from buoy.config import configured_store, person
from buoy.core.durations import in_words
from buoy.core.schedule.schedule import CatchUp, Schedule, when_text
from buoy.operations.control.schedules import (
    FoundSchedules,
    Times,
    add_schedule,
    list_schedules,
    pause_schedule,
    remove_schedule,
    resume_schedule,
)
from buoy.operations.targets.spec_files import Target
from buoy.operations.workers.scheduler import next_fire
from buoy.wiring.app import open_client

if TYPE_CHECKING:
    from buoy import Client


@click.group("schedule")
def schedule_group() -> None:
    """Start runs by the clock. Every worker fires what is due; each time fires once.

    The run of a time gets the id NAME-20260102T030000Z. Each command takes --store and --json.

    \b
    Example:
      buoy schedule add nightly flows.py:report --cron "0 3 * * *"

    Exit code: 0 done, 2 bad input, 5 store unusable.
    """


@schedule_group.command("add")
@click.argument("name")
@click.argument("target", metavar="FILE.py:WORKFLOW | FILE.yaml")
@click.option("--cron", metavar="CRON", help="Minute, hour, day of month, month, day of week: '0 3 * * mon-fri'.")
@click.option(
    "--every",
    "every_s",
    metavar="TIME",
    callback=duration,
    help="An interval instead of --cron, for example 1h or 90s.",
)
@click.option("--zone", metavar="ZONE", help="The time zone of --cron, for example Europe/Berlin. [UTC]")
@click.option("--catch-up", type=click.Choice(["none", "last", "all"]), default="last", show_default=True,
              help="Which missed times to catch up on after no worker was alive.")  # fmt: skip
@click.option("--input", "given", metavar="JSON", help="Arguments by name, as a JSON object; @FILE reads a file.")
@click.option("--arg", "pairs", metavar="NAME=VALUE", multiple=True, help="One argument; may be repeated.")
@param_option
@calls_option
@shared_options
def add_command(
    name: str,
    target: str,
    cron: str | None,
    every_s: float | None,
    zone: str | None,
    catch_up: CatchUp,
    given: str | None,
    pairs: tuple[str, ...],
    params: tuple[str, ...],
    prefixes: tuple[str, ...],
    store: str | None,
    as_json: bool,
) -> int:
    """Start runs of a workflow from now on, by cron or by interval. Adding the same schedule again has no effect.

    \b
    Example:
      buoy schedule add nightly flows.py:report --cron "0 3 * * *" --zone Europe/Berlin

    Exit code: 0 added (or it exists already), 2 bad input, 5 store unusable.
    """
    with results_alone(as_json=as_json):
        found = named_target(target, given, pairs, params, prefixes)
        times = Times(cron=cron, every_s=every_s, zone=zone, catch_up=catch_up)
        made, coming = go(_added(name, found, times, store))
    if as_json:
        print_json(made)
        return Exit.OK
    say(f"{made.name}: {when_text(made)}, next {'never' if coming is None else render.local(coming)}")
    return Exit.OK


async def _added(name: str, target: Target, times: Times, store: str | None) -> tuple[Schedule, float | None]:
    async with open_client(configured_store(store), actor=person()) as client:
        made = await add_schedule(client, name, target.workflow, target.input, times)
        return made, next_fire(made, float(await client.store.now()))


@schedule_group.command("list")
@shared_options
def list_command(store: str | None, as_json: bool) -> int:
    """List the schedules with their last run and their next time.

    \b
    Example:
      buoy schedule list

    Exit code: 0 listed, 2 bad input, 5 store unusable.
    """
    found = go(_listed(store))
    if as_json:
        print_json(found.listed())
        return Exit.OK
    for one in found.broken:
        say(f"schedule {one.id} cannot be read and does not fire: {one.reason}", err=True)
    if not found.schedules:
        say("no schedules")
        return Exit.OK
    table = render.plain_table("NAME", "WORKFLOW", "WHEN", "NEXT", "CATCH UP", "FIRED", "SKIPPED", "LAST RUN")
    for each in found.schedules:
        coming = next_fire(each, found.now)
        when = "paused" if coming is None else f"{render.local(coming)} (in {in_words(coming - found.now)})"
        counts = (str(each.fired), str(each.skipped), each.last_run or "")
        table.add_row(each.name, each.workflow, when_text(each), when, each.catch_up, *counts)
    render.console().print(table)
    return Exit.OK


async def _listed(store: str | None) -> FoundSchedules:
    async with connected(store) as client:
        return await list_schedules(client)


@schedule_group.command("pause")
@click.argument("name")
@shared_options
def pause_command(name: str, store: str | None, as_json: bool) -> int:
    """Pause a schedule. Runs that it started continue.

    \b
    Example:
      buoy schedule pause nightly

    Exit code: 0 paused, 2 bad input, 5 store unusable.
    """
    return _change("pause", name, store, as_json=as_json)


@schedule_group.command("resume")
@click.argument("name")
@shared_options
def resume_command(name: str, store: str | None, as_json: bool) -> int:
    """Resume a paused schedule from now on. Times that passed during the pause are skipped.

    \b
    Example:
      buoy schedule resume nightly

    Exit code: 0 resumed, 2 bad input, 5 store unusable.
    """
    return _change("resume", name, store, as_json=as_json)


@schedule_group.command("remove")
@click.argument("name")
@shared_options
def remove_command(name: str, store: str | None, as_json: bool) -> int:
    """Remove a schedule, also one that cannot be read. Runs that it started continue.

    \b
    Example:
      buoy schedule remove nightly

    Exit code: 0 removed, 2 bad input, 5 store unusable.
    """
    return _change("remove", name, store, as_json=as_json)


_CHANGES: dict[str, tuple[Callable[[Client, str], Awaitable[object]], str]] = {
    "pause": (pause_schedule, "paused"),
    "resume": (resume_schedule, "resumed"),
    "remove": (remove_schedule, "removed"),
}


def _change(verb: str, name: str, store: str | None, *, as_json: bool) -> int:
    work, done = _CHANGES[verb]

    async def changed() -> object:
        async with connected(store) as client:
            return await work(client, name)

    made = go(changed())
    if as_json:
        print_json(made)
    else:
        say(f"schedule {name} is {done}")
    return Exit.OK
