"""`buoy doctor`: checks the store, its documents and its indexes against the logs."""

from __future__ import annotations

from collections.abc import Callable

import click
from rich.text import Text

from buoy.cli.terminal import render
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.log.wording import counted
from buoy.operations.maintenance.broken_runners import declare_dead as declare_runner_dead
from buoy.operations.maintenance.doctor import Doctor
from buoy.operations.maintenance.doctor_report import (
    INDEX,
    NEVER_MENDED,
    PURGE,
    RUNNER,
    STORE,
    DoctorReport,
    derived_checks,
)

_SHOWN_MAX = 30
_PRINT_EVERY_S = 2.0
_OF_THE_STORE = {
    STORE: "The store itself is not as it should be",
    INDEX: "An entry of an index is missing or left over, or a document cannot be read",
    PURGE: "A purge was begun and not finished",
    RUNNER: "The record of a runner cannot be read",
}


class _Progress:
    """Prints the progress of a long examination to standard error, every two seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._printed_at = monotonic()
        self._last = ""

    def __call__(self, text: str) -> None:
        now = self._monotonic()
        if now - self._printed_at >= _PRINT_EVERY_S and text != self._last:
            self.at_once(text)

    def at_once(self, text: str) -> None:
        self._printed_at, self._last = self._monotonic(), text
        say(f"{text}...", err=True)


@click.command()
@click.option("--fix", is_flag=True, help="Repair what the logs determine: documents, index entries, tasks.")
@click.option("--rebuild", is_flag=True, help="Also rebuild every document, including those of ended runs.")
@click.option("--declare-dead", metavar="RUNNER", help="Declare dead a runner whose record cannot be read.")
@shared_options
def doctor(fix: bool, rebuild: bool, declare_dead: str | None, store: str | None, as_json: bool) -> int:
    """Check the store itself, every active run's document against its log, and every index entry.

    Without --fix no run is changed. No event is ever changed or removed. If events may have been lost, --fix records
    the loss in the log (events claimed and workflow_recovered) before it rebuilds the document. It adds no other event;
    'buoy recover' applies remedies. Safe at any time, also while workers run. On an object store --fix may wait a
    minute before it removes an entry that points at nothing: its writer may still write the rest.

    A runner whose record cannot be read keeps its runs until the end of its process is proven. If it holds none, --fix
    waits for the time of a beat and sets the record aside. If you know that its process ended, --declare-dead RUNNER
    says so: its runs are taken over. It is refused while a process holds the runner's lock.

    \b
    Example:
      buoy doctor
      buoy doctor --rebuild --json
      buoy doctor --declare-dead worker-7f3a

    Exit code: 0 healthy, or all troubles are repaired, 1 troubles are left, 2 bad input, 5 store unusable.
    """
    report = go(_report(store, fix=fix, rebuild=rebuild, dead=declare_dead))
    if as_json:
        print_json({**{name: getattr(report, name) for name in report.__struct_fields__}, "healthy": report.healthy})
    else:
        _show(report, repaired=fix or rebuild)
    return Exit.OK if report.healthy else Exit.FAILED


async def _report(store: str | None, *, fix: bool, rebuild: bool, dead: str | None) -> DoctorReport:
    async with connected(store) as client:
        if dead is not None:
            freed = await declare_runner_dead(client, dead)
            say(f"runner {dead} is declared dead; {counted(freed, 'run')} released", err=True)
        progress = _Progress(client.clock.monotonic)
        return await Doctor(client, fix=fix, rebuild=rebuild, progress=progress, waiting=progress.at_once).examine()


def _show(report: DoctorReport, *, repaired: bool) -> None:
    out = render.console()
    out.print(f"store      {report.store}")
    for check in (*report.checks, *derived_checks(report)):
        out.print(Text(f"{check.name:<10} {check.text}", style="" if check.ok else "red"))
    more = [(report.lagging, "behind its log"), (report.foreign, "without a log (Q6)"), (report.rebuilt, "rebuilt")]
    extra = "".join(f", {number:,} {what}" for number, what in more if number)
    out.print(f"documents  {counted(report.runs, 'run')} looked at{extra}")
    if report.stale:
        out.print(f"stale      {report.stale:,} left over in the indexes, which is no trouble: their readers drop them")
    if not report.counts:
        out.print(Text("healthy", style="green"))
        return
    for code, number in sorted(report.counts.items()):
        entry = CATALOGUE.get(code)
        out.print(f"{code:<10} {number:,}  {_OF_THE_STORE.get(code, '') if entry is None else entry.title}".rstrip())
    for each in report.troubles[:_SHOWN_MAX]:
        whose = "" if each.run_id is None else f"{each.run_id}: "
        out.print(Text(f"  {'repaired ' if each.fixed else ''}{each.code} {whose}{each.text}"))
    hidden = len(report.troubles) + report.untold - _SHOWN_MAX
    if hidden > 0:
        out.print(f"  and {hidden:,} more")
    out.print(Text(_end(report, repaired=repaired), style="red" if report.left else "green"))


def _end(report: DoctorReport, *, repaired: bool) -> str:
    if not report.left:
        return f"{counted(report.fixed, 'trouble')} repaired, none left"
    # Of more troubles than are listed, only the codes are known.
    left = set(report.counts) if report.untold else {each.code for each in report.unrepaired}
    told = (each.by_person or (repaired and each.code == RUNNER) for each in report.unrepaired)
    if report.unrepaired and all(told):
        advice = "what to do stands in each line"
    elif left <= NEVER_MENDED:
        advice = (
            "none of these can be repaired here; keep a copy of the store; about a run: `buoy why RUN`; "
            "to give such a run up: `buoy purge RUN --broken`"
        )
    else:
        advice = "see `buoy why RUN`, `buoy recover RUN`" if repaired else "repair them: buoy doctor --fix"
    return f"{counted(report.left, 'trouble')} left, {report.fixed:,} repaired; {advice}"
