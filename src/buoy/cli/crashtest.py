"""`buoy crashtest`: crash a workflow at every point, and check that it recovers."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table
from rich.text import Text

from buoy.cli.terminal import render
from buoy.cli.terminal.options.targets import named_target, param_option
from buoy.cli.terminal.output import print_json, results_alone
from buoy.cli.terminal.program import Exit, calls_option
from buoy.config import choose_store
from buoy.core.urls import shown_url
from buoy.errors import BadInput
from buoy.operations.targets.inputs import parse_json

if TYPE_CHECKING:
    from buoy.testing.crashtest import Crash, Finding, Report

_ROWS_MAX = 40
_INDENT = 5
# What the columns beside the write need.
_MARKS_COLUMNS = 56
# What a URL names there.
_KINDS = {"postgres": "postgres", "postgresql": "postgres", "s3": "s3", "gs": "s3", "az": "s3"}
_PHASES = ("before", "after", "twice", "cancel", "undo")


@click.command()
@click.argument("target", metavar="FILE.py:WORKFLOW | FILE.yaml")
@click.option("--input", "given", metavar="JSON", help="Arguments by name, as a JSON object; @FILE reads a file.")
@click.option("--arg", "pairs", metavar="NAME=VALUE", multiple=True, help="One argument; may be repeated.")
@param_option
@calls_option
@click.option("--answers", metavar="FILE", help="A script (YAML or JSON) of answers and signals.")
@click.option(
    "--stub",
    "stubs",
    metavar="STEP=JSON",
    multiple=True,
    help="Use this result instead of executing the step; may be repeated.",
)
@click.option(
    "--repeatable",
    metavar="STEP",
    multiple=True,
    help="Allow this step to run twice (a name or a pattern); may be repeated.",
)
@click.option(
    "--allow",
    metavar="KIND",
    multiple=True,
    help="Ignore findings of this kind, such as clock or random; may be repeated.",
)
@click.option(
    "--max-crashes", type=int, metavar="N",
    help="Crash at N points only, each before or after a write, chosen by the seed.",
)  # fmt: skip
@click.option("--no-cancel", is_flag=True, help="Skip cancelling the run at every point.")
@click.option(
    "--no-fresh", is_flag=True,
    help="Skip replays in fresh processes, where sets have another order; saves a second.",
)  # fmt: skip
@click.option(
    "--real", is_flag=True, help="Use real processes, SIGKILL and a store on disk; slower, but the real thing."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed for the choice of points and for Python's random."
)
@click.option("--junit", metavar="FILE", help="Also write a JUnit report, for CI.")
@click.option(
    "--prints", is_flag=True, help="Show what the steps print. Hidden by default, because steps run many times."
)
@click.option(
    "--store", metavar="KIND|URL", show_default="memory; with --real sqlite",
    help="Kind of store to test on: memory, sqlite, folder, postgres, s3; always a new one, never yours. 'postgres': "
    "new schemas in the database of $BUOY_STORE; 's3': new prefixes in its bucket; removed at the end. A URL names "
    "that database or bucket instead.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def crashtest(target: str, prints: bool, junit: str | None, as_json: bool, **given: Any) -> int:
    """Crash a workflow before and after every write, and check that it recovers.

    Runs the workflow once without a crash, then once for every point. At each point the process dies, another one
    takes the run over, and the outcomes are compared. Reports outcomes that differ, steps that act twice and code
    that is not deterministic. Reports calls that block or are never awaited, results that are not JSON, and
    cancellation that is swallowed. Prints how long recovery took.

    STEPS ARE REALLY EXECUTED, many times: use test doubles, or --stub STEP=JSON. Time is skipped: a sleep of days
    takes milliseconds. Commands of a spec run in the current folder, in real time.

    \b
    Example:
      buoy crashtest flows.py:checkout --input '{"order": 7}' --answers answers.yaml
      buoy crashtest flows.py:checkout --arg order=7 --stub charge='"receipt-1"' --repeatable load_order
      buoy crashtest nightly.yaml --param k=1:2 --repeatable 'train_*'

    Exit code: 0 nothing found, 1 findings, 2 bad input.
    """
    with results_alone(as_json=as_json):
        report = _tested(target, prints=prints, quiet=as_json, **given)
    if junit is not None:
        _write_junit(Path(junit), report)
    if as_json:
        took = report.recovery_ms()
        recovery = None if took is None else {"median_ms": took[0], "longest_ms": took[1]}
        findings = [{"title": each.title, **msgspec.to_builtins(each)} for each in report.findings]
        print_json({"ok": report.ok, **msgspec.to_builtins(report), "findings": findings, "recovery": recovery})
    else:
        _show(report)
    return Exit.OK if report.ok else Exit.FAILED


def _tested(
    target: str, *, prints: bool, quiet: bool, given: str | None, pairs: tuple[str, ...], params: tuple[str, ...],
    prefixes: tuple[str, ...], answers: str | None, stubs: tuple[str, ...], no_cancel: bool, no_fresh: bool,
    store: str | None, **options: Any,
) -> Report:  # fmt: skip
    from buoy.testing.crashtest import Options, crash_test
    from buoy.testing.script import read_script

    found = named_target(target, given, pairs, params, prefixes)
    script = None if answers is None else read_script(answers)
    canned = dict(_stub(text) for text in stubs)
    options["store"] = None if store is None else _kind(store)
    # The engine logs every process that the test drops on purpose: hide that.
    logging.getLogger("buoy").addHandler(logging.NullHandler())
    hidden = contextlib.nullcontext() if prints else contextlib.redirect_stdout(io.StringIO())
    with _progress(quiet=quiet) as report_progress, hidden:
        chosen = Options(stubs=canned, cancels=not no_cancel, fresh=not no_fresh, calls=found.calls, **options)
        return crash_test(found.workflow, found.input, script, chosen, report_progress)


def _kind(store: str) -> str:
    """The kind of store. A URL becomes the configured store, where the scenarios find their database or bucket."""
    scheme, mark, _ = store.partition("://")
    if not mark:
        return store
    if (kind := _KINDS.get(scheme)) is None:
        raise BadInput(f"invalid --store {shown_url(store)!r}; write the URL of a bucket or of a PostgreSQL database")
    choose_store(store)
    return kind


def _stub(text: str) -> tuple[str, Any]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise BadInput(f"invalid --stub {text!r}; write STEP=JSON")
    return name, parse_json(value, f"--stub {name}")


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Any]:
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with Progress(console=render.console(err=True), transient=True) as bar:
        task: TaskID = bar.add_task("crashing", total=None)

        def report_progress(done: int, of: int, crash: Crash) -> None:
            bar.update(task, completed=done, total=of, description=f"{crash.phase} write {crash.number}")

        yield report_progress


def _write_junit(path: Path, report: Report) -> None:
    from buoy.testing.crashtest.junit import junit

    try:
        path.write_text(junit(report))
    except OSError as error:
        raise BadInput(f"--junit {path} cannot be written: {error}") from error


# ---- for people


def _show(report: Report) -> None:
    out = render.console()
    out.print(Text(report.summary()))
    out.print(Text(f"without a crash: {report.reference}\n"))
    out.print(_table(report, out.width))
    for repeat in report.repeats:
        if repeat.looks_at_key:
            text = f"{repeat.leaf} ran {repeat.executions} times under one key, which it looks at: {repeat.key}"
            out.print(Text(f"\n{text}", style="dim"), end="")
    out.print()
    for text in report.remarks():
        out.print(Text(f"! {text}", style="yellow"))
    if report.ok:
        out.print(Text(f"✓ {report.verdict()}", style="bold green"))
    for number, finding in enumerate(report.findings, 1):
        _show_finding(out, number, finding)


def _show_finding(out: Console, number: int, finding: Finding) -> None:
    from buoy.testing.crashtest.report import seen_at

    out.print(Text(f"✗ {number}. {finding.title}", style="bold red"))
    _indented(out, finding.what)
    _indented(out, f"What to do: {finding.advice}", "bold")
    if finding.points:
        _indented(out, f"Seen: {seen_at(finding.points)}", "dim")
    out.print()


def _indented(out: Console, text: str, style: str = "") -> None:
    """Wrapped to a terminal's width; one whole line for a pipe."""
    lines = textwrap.wrap(text, max(out.width - _INDENT, _INDENT)) if out.is_terminal else [text]
    for line in lines:
        out.print(Text(" " * _INDENT + line, style=style))


def _table(report: Report, columns: int) -> Table:
    """One line per write: what it was, and how each crash around it went."""
    tried = {crash.phase for crash in report.crashes}
    # Most workflows have nothing to undo, and need no column for it.
    phases = [phase for phase in _PHASES if phase != "undo" or phase in tried]
    table = render.plain_table("#", "write", *phases, "recovery")
    rows: dict[int, dict[str, Crash]] = {}
    for crash in report.crashes:
        rows.setdefault(crash.number, {})[crash.phase] = crash
    wrong = [number for number, row in rows.items() if not all(crash.ok for crash in row.values())]
    shown = [number for number in rows if number in wrong or len(rows) <= _ROWS_MAX][: 2 * _ROWS_MAX]
    for number in shown:
        row = rows[number]
        what = next(iter(row.values())).what
        took = [crash.recovery_ms for crash in row.values() if crash.recovery_ms is not None]
        marks = [_mark(row.get(phase)) for phase in phases]
        table.add_row(
            str(number),
            textwrap.shorten(what, max(columns - _MARKS_COLUMNS, 20), placeholder="..."),
            *marks,
            f"{max(took):.1f} ms" if took else "",
        )
    if len(shown) < len(rows):
        table.add_row("", f"... and {len(rows) - len(shown)} more writes, all fine", *("" for _ in phases), "")
    return table


def _mark(crash: Crash | None) -> Text:
    if crash is None:
        return Text("·", style="dim")
    return Text("✓", style="green") if crash.ok else Text("✗", style="bold red")
