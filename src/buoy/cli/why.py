"""`buoy why`: one run in plain words, or all that are in trouble, one line each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click
import msgspec
from msgspec.structs import replace
from rich.text import Text

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import HEALTH_STYLE, console, local
from buoy.cli.terminal.run_ids import optional_run_argument
from buoy.core.diagnosis.findings import Finding, first_notice
from buoy.core.diagnosis.health import TROUBLES, Health, judge
from buoy.core.explain.explain import Explanation, explain, explain_broken
from buoy.core.explain.findings import finding_text
from buoy.core.limits import RUNS_PAGE_MAX, STALE_AFTER_S
from buoy.core.log.lifecycle import TERMINAL, Status
from buoy.core.log.wording import counted
from buoy.engine.client.client import Client
from buoy.errors import BadInput, CorruptLog, Problem
from buoy.ports.records import RunQuery, RunRecord
from buoy.recovery.evidence import Fleet, facts_of_run, read_fleet, store_facts, store_trouble
from buoy.recovery.recover import Examined, examine

_UNDER_WAY = tuple(sorted(set(Status) - TERMINAL))


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """One run in trouble, in one line; `notice`: it is healthy by all signs, and yet worth a word."""

    run_id: str
    workflow: str
    # None: it cannot be read.
    status: Status | None
    health: Health
    code: str | None = None
    text: str
    notice: bool = False


@click.command()
@optional_run_argument
@click.option("--all", "every", is_flag=True, help="Every run that is in trouble, one line each.")
@shared_options
def why(run_id: str | None, every: bool, store: str | None, as_json: bool) -> int:
    """Say in plain words what a run is doing or waiting for.

    What is wrong if anything, on what evidence, what Buoy will do next and when, and what you can do now.

    \b
    Example:
      buoy why order-1
      buoy why --all

    Exit code: 0 told, 1 with --all: there are troubles, 2 no such run, 5 store unusable.
    """
    if (run_id is None) != every:
        raise BadInput("name a run, or say --all for every run that is in trouble")
    if run_id is None:
        return _tell_all(store, as_json=as_json)
    found = go(_explained(run_id, store))
    if as_json:
        print_json(found)
    else:
        _show(found)
    return Exit.OK


async def _explained(run_id: str, store: str | None) -> Explanation:
    async with connected(store) as client:
        try:
            record = await client.record(run_id)
        except CorruptLog as error:
            return explain_broken(run_id, str(error), wording(store, local))
        fleet = await read_fleet(client.store, client.liveness)
        facts, _ = await facts_of_run(client.store, fleet, record, stale_after_s=STALE_AFTER_S)
        facts = replace(facts, store=await store_facts(client.store))
        return explain(facts, wording(store, local))


def _show(found: Explanation) -> None:
    out = console()
    out.print(Text(found.headline, style="bold"))
    if found.now:
        out.print(found.now)
    state = Text("status ").append(found.status or "unreadable", style="cyan").append(", health ")
    out.print(state.append(found.health, style=HEALTH_STYLE[found.health]))
    parts = (("Wrong", found.wrong), ("Evidence", found.evidence), ("Next", found.next), ("You can", found.you_can))
    for title, lines in parts:
        if lines:
            out.print(Text(f"\n{title}", style="bold"))
            for line in lines:
                out.print(f"  {line}")


def _tell_all(store: str | None, *, as_json: bool) -> int:
    everything, refused = go(_all(store))
    found, notices = [each for each in everything if not each.notice], [each for each in everything if each.notice]
    if as_json:
        print_json({"troubles": found, "notices": notices, "store": refused})
    else:
        out = console()
        if refused is not None:
            out.print(Text(refused, style="red"))
        for each in (*found, *notices):
            line = Text(each.run_id, style="bold").append(f"  {each.status or 'unreadable'}  ", style="cyan")
            said = f"  {'notice: ' if each.notice else ''}{each.text}"
            out.print(line.append(each.health, style=HEALTH_STYLE[each.health]).append(said, style=""))
        out.print(Text(f"{counted(len(found), 'run')} in trouble", style="red" if found else "green"))
    return Exit.FAILED if found or refused is not None else Exit.OK


async def _all(store: str | None) -> tuple[list[Trouble], str | None]:
    """Every run in trouble, and what is wrong with the store itself."""
    async with connected(store) as client:
        return [each async for each in _troubles(client)], await store_trouble(client.store)


async def _troubles(client: Client) -> AsyncIterator[Trouble]:
    """Every run that has not ended is looked at, with its log."""
    cursor: str | None = None
    while True:
        page = await client.runs(RunQuery(statuses=_UNDER_WAY), cursor, RUNS_PAGE_MAX)
        fleet = await read_fleet(client.store, client.liveness)
        for one in page.broken:
            text = f"it cannot be read: {one.reason}"
            yield Trouble(run_id=one.id, workflow="", status=None, health=Health.UNKNOWN, code="R1", text=text)
        for record in page.runs:
            found = await _trouble(client, record, fleet)
            if found is not None:
                yield found
        cursor = page.cursor
        if cursor is None:
            return


async def _trouble(client: Client, record: RunRecord, fleet: Fleet) -> Trouble | None:
    doc = record.document

    def told(status: Status, health: Health, text: str, code: str | None = None) -> Trouble:
        return Trouble(run_id=doc.run_id, workflow=doc.workflow, status=status, health=health, code=code, text=text)

    try:
        seen = await examine(client, doc.run_id, fleet=fleet, stale_after_s=STALE_AFTER_S)
    except Problem as error:
        return told(doc.status, Health.UNKNOWN, f"it could not be read: {error}")
    verdict, shown = judge(seen.facts), seen.facts.document
    finding = _first(seen)
    if finding is not None:
        return told(shown.status, verdict.health, finding_text(finding), finding.code)
    if verdict.health in TROUBLES:
        return told(shown.status, verdict.health, "; ".join(verdict.reasons))
    if shown.pause is not None and shown.pause.reason != "user":
        return told(shown.status, verdict.health, f"paused: {shown.pause.detail or shown.pause.reason}")
    notice = first_notice(seen.findings)
    if notice is None:
        return None
    return replace(told(shown.status, verdict.health, finding_text(notice), notice.code), notice=True)


def _first(seen: Examined) -> Finding | None:
    return next((each for each in seen.findings if each.trouble), None)
