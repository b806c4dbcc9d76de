"""`buoy ps`, `buoy show` and `buoy events`: look at runs without touching them."""

from __future__ import annotations

from itertools import pairwise

import click
import msgspec
from rich.text import Text

from buoy.cli import render
from buoy.cli.event_lines import describe, leaf_line
from buoy.cli.filters import Filters, run_filters
from buoy.cli.output import json_line, print_json
from buoy.cli.program import Exit, connected, go, shared_options, wording
from buoy.core.document import Document
from buoy.core.drift import log_gone_text
from buoy.core.events import Event
from buoy.core.facts import Facts, ProgressFacts
from buoy.core.health import Health, judge
from buoy.core.ids import check_run_id
from buoy.core.lifecycle import TERMINAL, Status
from buoy.core.limits import EVENTS_PAGE, RUNS_PAGE_MAX
from buoy.core.phrases import current_progress, expected_text, questions, runner_text, traceback_lines
from buoy.core.state import fold
from buoy.errors import CorruptLog
from buoy.ports import RunPage
from buoy.recovery.evidence import crew, facts_of_page, facts_of_run

_NOT_ENDED = tuple(sorted(set(Status) - TERMINAL))


class RunView(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A run as `--json` gives it."""

    document: Document
    health: Health
    reasons: tuple[str, ...]
    runner: str | None = None
    pid: int | None = None
    host: str | None = None
    beat_age_s: float | None = None
    due_at: float | None = None
    progress: ProgressFacts | None = None
    unread: int = 0


def run_view(facts: Facts) -> RunView:
    verdict, holder = judge(facts), facts.holder
    return RunView(
        document=facts.document,
        health=verdict.health,
        reasons=verdict.reasons,
        runner=None if holder is None else holder.id,
        pid=None if holder is None else holder.pid or None,
        host=None if holder is None else holder.host or None,
        beat_age_s=None if holder is None else holder.beat_age_s,
        due_at=facts.due_at,
        progress=current_progress(facts),
        unread=facts.unread,
    )


@click.command()
@click.option("--all", "everything", is_flag=True, help="Ended runs, too.")
@click.option(
    "--status", "statuses", multiple=True, type=click.Choice([each.value for each in Status]), help="May be repeated."
)
@run_filters
@click.option("--limit", type=click.IntRange(1, RUNS_PAGE_MAX), default=50, show_default=True, help="Runs per page.")
@click.option("--cursor", metavar="CURSOR", help="Go on where the last page ended.")
@shared_options
def ps(
    everything: bool,
    statuses: tuple[str, ...],
    filters: Filters,
    limit: int,
    cursor: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """List runs, newest first: those that have not ended, unless told otherwise.

    \b
    Example:
      buoy ps --status awaiting_input --workflow order

    Exit code: 0 listed, 2 bad input, 5 store unusable.
    """
    wanted = statuses or (() if everything else _NOT_ENDED)
    page, found = go(_listed(wanted, filters, cursor, limit, store))
    if as_json:
        print_json({"runs": [run_view(each) for each in found], "cursor": page.cursor})
        return Exit.OK
    if not found:
        click.echo("no runs" if everything or statuses else "no runs under way; `buoy ps --all` lists the ended ones")
        return Exit.OK
    _print_runs(found)
    if page.cursor is not None:
        click.echo(f"more: --cursor {page.cursor}", err=True)
    return Exit.OK


async def _listed(
    statuses: tuple[str, ...], filters: Filters, cursor: str | None, limit: int, store: str | None
) -> tuple[RunPage, list[Facts]]:
    async with connected(store) as client:
        page = await client.runs(filters.query(statuses, client.clock.now()), cursor, limit)
        people = await crew(client.store, client.liveness)
        return page, await facts_of_page(client.store, people, page.runs)


def _print_runs(found: list[Facts]) -> None:
    heads = ("RUN", "WORKFLOW", "STATUS", "HEALTH", "AT", "TRY", "AGE", "LAST BEAT", "PID", "HOST", "PROGRESS")
    table = render.plain_table(*heads)
    for facts in found:
        doc = facts.document
        table.add_row(
            doc.run_id,
            doc.workflow,
            doc.status,
            render.health_text(judge(facts).health),
            render.where(doc),
            render.attempt(doc),
            render.ago(facts.now - doc.created_at),
            *render.owner_cells(facts),
            render.progress_cell(facts),
        )
    render.console().print(table)


@click.command()
@click.argument("run_id", metavar="RUN")
@shared_options
def show(run_id: str, store: str | None, as_json: bool) -> int:
    """Show all that is known about one run.

    \b
    Example:
      buoy show order-1

    Exit code: 0 shown, 2 no such run, 5 store unusable.
    """
    facts = go(_facts(run_id, store))
    if as_json:
        print_json(run_view(facts))
        return Exit.OK
    out = render.console()
    for name, value in _lines(facts):
        out.print(Text(f"{name:<10}", style="dim").append(value, style="default"))
    return Exit.OK


async def _facts(run_id: str, store: str | None) -> Facts:
    async with connected(store) as client:
        record = await client.record(run_id)
        people = await crew(client.store, client.liveness)
        return (await facts_of_run(client.store, people, record))[0]


def _lines(facts: Facts) -> list[tuple[str, str]]:
    doc, verdict, now = facts.document, judge(facts), facts.now
    lines = [
        ("run", doc.run_id),
        ("workflow", f"{doc.workflow}, version {doc.version or 'none'}, recovery {doc.policy}, queue {doc.queue}"),
        ("status", doc.status),
        ("health", f"{verdict.health}: {'; '.join(verdict.reasons)}"),
        ("created", f"{render.local(doc.created_at)} ({render.ago(now - doc.created_at)})"),
        ("changed", f"{render.local(doc.updated_at)} ({render.ago(now - doc.updated_at)})"),
        ("log", f"{doc.head_seq} events, branch {doc.branch}, claims {doc.claims}, recoveries {doc.recoveries}"),
        ("steps", _steps(facts)),
    ]
    if facts.holder is not None:
        lines.append(("owner", f"{runner_text(facts.holder)}, last beat {render.ago(facts.holder.beat_age_s)}"))
    if facts.due_at is not None:
        lines.append(("due", render.local(facts.due_at)))
    progress = current_progress(facts)
    if progress is not None:
        lines.append(("progress", f"{progress.leaf}: {render.progress_cell(facts)}"))
    if facts.unread:
        lines.append(("unread", f"{facts.unread} messages"))
    return lines + _detail_lines(facts)


def _detail_lines(facts: Facts) -> list[tuple[str, str]]:
    doc, now = facts.document, facts.now
    lines = [("open", f"{leaf_line(leaf)}, {render.ago(now - leaf.since)}") for leaf in doc.open]
    for leaf in questions(doc):
        if leaf.question is not None:
            lines.append(("question", f"{leaf.name!r}, id {leaf.question_id}, expects {expected_text(leaf.question)}"))
    if doc.pause is not None:
        by = f" by {doc.pause.by}" if doc.pause.by else ""
        detail = f": {doc.pause.detail}" if doc.pause.detail else ""
        lines.append(("pause", f"{doc.pause.reason}{by}, {render.ago(now - doc.pause.at)}{detail}"))
    if doc.cancel_requested and not doc.ended:
        lines.append(("cancel", "asked for"))
    if doc.error is not None:
        first, *more = doc.error.message.splitlines() or [""]
        lines.append(("error", f"{doc.error.type}: {first}"))
        lines += [("", line) for line in more]
        lines += [("traceback" if not place else "", line) for place, line in enumerate(_where(facts))]
    return lines


def _where(facts: Facts) -> tuple[str, ...]:
    """Where the error happened: in the step that failed, else in the workflow's own code."""
    error, step = facts.document.error, facts.story.failed
    if error is None:
        return ()
    named = step is not None and str(step.leaf) in error.message
    inner = step.error if step is not None and named else None
    return traceback_lines(inner or error)


def _steps(facts: Facts) -> str:
    """Of the current branch. Questions, timers, children and compensations are no steps."""
    doc = facts.document
    if facts.log is None:
        return f"{doc.completed_count} completed, {doc.failed_count} failed, {doc.open_count} open, as counted before"
    leaves = [each for each in fold(doc.run_id, facts.log).leaves.values() if each.kind in ("step", "module")]
    phases = [each.phase for each in leaves]
    under_way = sum(phase in ("open", "retrying") for phase in phases)
    undone = f", {len(facts.story.undone)} undone" if facts.story.undone else ""
    failed = f", {len(facts.story.not_undone)} could not be undone" if facts.story.not_undone else ""
    return f"{phases.count('completed')} completed, {phases.count('failed')} failed, {under_way} open{undone}{failed}"


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--follow", "-f", is_flag=True, help="Go on with the events to come, until the run ends.")
@click.option("--after", type=click.IntRange(0), default=0, show_default=True, help="Only events after this number.")
@click.option("--limit", type=click.IntRange(1, EVENTS_PAGE), help="At most so many.")
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
    found, missing = go(_events(run_id, after, limit or EVENTS_PAGE, store))
    if as_json:
        print_json({"run_id": run_id, "events": found, "missing": missing})
    else:
        for event in found:
            _print_event(event, as_json=False)
        if limit is None and len(found) == EVENTS_PAGE:
            click.echo(f"more: --after {found[-1].seq}", err=True)
    for first, last in missing:
        what = f"event {first} is" if first == last else f"events {first} to {last} are"
        click.echo(f"warning: {what} missing; see {wording(store, render.local).command('why', run_id)}", err=True)
    return Exit.FAILED if missing else Exit.OK


async def _events(run_id: str, after: int, limit: int, store: str | None) -> tuple[list[Event], list[tuple[int, int]]]:
    """The events, and the first and last number of each gap. The document, read before, tells how many there are."""
    async with connected(store) as client:
        record = await client.record(run_id)
        found = await client.store.events(check_run_id(run_id), after, limit)
    numbers = [after, *(event.seq for event in found)]
    if len(found) < limit and record.envelope.orchestrator_task_id is not None:
        numbers.append(max(numbers[-1], record.document.head_seq) + 1)
    return found, [(one + 1, other - 1) for one, other in pairwise(numbers) if other - one > 1]


async def _follow(run_id: str, after: int, limit: int | None, store: str | None, *, as_json: bool) -> None:
    async with connected(store) as client:
        record, shown = await client.record(run_id), 0
        driven = record.envelope.orchestrator_task_id is not None
        if driven and not await client.store.events(record.document.run_id, 0, 1):
            raise CorruptLog(log_gone_text(record.document.head_seq))
        async for event in client.follow(run_id, after):
            _print_event(event, as_json=as_json)
            shown += 1
            if shown == limit:
                return


def _print_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_line(event))
    else:
        click.echo(f"{event.seq:>5}  {render.clock(event.at)}  {event.type:<22} {describe(event.body)}".rstrip())
