"""`buoy show`: all that is known about one run, without touching it."""

from __future__ import annotations

import click
from rich.text import Text

from buoy.cli.terminal import render
from buoy.cli.terminal.lines.events import leaf_line, short_json
from buoy.cli.terminal.lines.leaves import leaf_lines, step_counts
from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.diagnosis.facts import Facts, is_cause
from buoy.core.diagnosis.health import judge
from buoy.core.explain.phrases import (
    current_progress,
    expected_text,
    questions,
    runner_text,
    status_text,
    traceback_lines,
)
from buoy.operations.inspect.run_detail import InspectedRun, RunDetail, inspect_run


@click.command()
@run_argument
@shared_options
def show(run_id: str, store: str | None, as_json: bool) -> int:
    """Show all that is known about one run.

    Shows input and result, steps and waits with arguments, outcome, attempt and time, the owner and what is wrong.
    Long values are cut; --json has them whole.

    \b
    Example:
      buoy show order-1

    Exit code: 0 shown, 2 no such run, 5 store unusable.
    """
    found = go(_inspected(run_id, store))
    if as_json:
        print_json(found.detail)
        return Exit.OK
    out = render.console()
    for name, value in _lines(found.facts, found.detail):
        out.print(Text(f"{name:<10}", style="dim").append(value, style="default"))
    return Exit.OK


async def _inspected(run_id: str, store: str | None) -> InspectedRun:
    async with connected(store) as client:
        return await inspect_run(client, run_id)


def _lines(facts: Facts, view: RunDetail) -> list[tuple[str, str]]:
    doc, verdict, now = facts.document, judge(facts), facts.now
    lines = [
        ("run", doc.run_id),
        ("workflow", f"{doc.workflow}, version {doc.version or 'none'}, recovery {doc.policy}, queue {doc.queue}"),
        ("status", status_text(doc.status)),
        ("health", f"{verdict.health}: {'; '.join(verdict.reasons)}"),
        ("created", f"{render.local(doc.created_at)} ({render.ago(now - doc.created_at)})"),
        ("changed", f"{render.local(doc.updated_at)} ({render.ago(now - doc.updated_at)})"),
        ("log", f"{doc.head_seq} events, branch {doc.branch}, claims {doc.claims}, recoveries {doc.recoveries}"),
        ("steps", _steps(facts, view)),
    ]
    if view.input is not None:
        lines.insert(2, ("input", short_json(view.input)))
    if view.result is not None:
        lines.append(("result", short_json(view.result)))
    if facts.holder is not None:
        lines.append(("owner", f"{runner_text(facts.holder)}, last beat {render.ago(facts.holder.beat_age_s)}"))
    if facts.due_at is not None:
        lines.append(("due", render.local(facts.due_at)))
    progress = current_progress(facts)
    if progress is not None:
        lines.append(("progress", f"{progress.leaf}: {render.progress_cell(facts)}"))
    if facts.unread:
        lines.append(("unread", f"{facts.unread} messages"))
    listed = [("" if place else "history", line) for place, line in enumerate(leaf_lines(view.leaves, now))]
    return lines + _detail_lines(facts) + listed


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
    if doc.moved_to is not None:
        lines.append(("moved", f"to {doc.moved_to}"))
    if doc.cancel_requested and not doc.ended:
        lines.append(("cancel", "asked for"))
    if doc.error is not None:
        first, *more = str(doc.error).splitlines()
        lines.append(("error", first))
        lines += [("", line) for line in more]
        lines += [("traceback" if not place else "", line) for place, line in enumerate(_where(facts))]
    return lines


def _where(facts: Facts) -> tuple[str, ...]:
    """Where the error happened: in the step that failed, else in the workflow's own code."""
    error, step = facts.document.error, facts.milestones.failed
    if error is None:
        return ()
    inner = step.error if step is not None and is_cause(facts.milestones.end, step.leaf) else None
    return traceback_lines(inner or error)


def _steps(facts: Facts, view: RunDetail) -> str:
    """Of the current branch."""
    doc = facts.document
    if facts.log is None:
        return f"{doc.completed_count} completed, {doc.failed_count} failed, {doc.open_count} open, as counted before"
    undone = f", {len(facts.milestones.undone)} undone" if facts.milestones.undone else ""
    failed = f", {len(facts.milestones.not_undone)} could not be undone" if facts.milestones.not_undone else ""
    return f"{step_counts(view.leaves)}{undone}{failed}"
