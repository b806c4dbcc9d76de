"""`buoy status`: the store as a whole: runs, workers, sweepers and troubles."""

from __future__ import annotations

import click
from rich.text import Text

from buoy.cli.terminal import render
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.diagnosis.facts import RunnerFacts
from buoy.core.diagnosis.takers import hindrance
from buoy.core.explain.phrases import runner_text
from buoy.core.limits import BEAT_S
from buoy.core.log.wording import counted
from buoy.operations.maintenance.status import ENDED, StatusReport, store_status

_RUNNERS_SHOWN = 100
_TROUBLES_SHOWN = 20


@click.command()
@shared_options
def status(store: str | None, as_json: bool) -> int:
    """Show the store as a whole: runs, workers, sweepers and troubles.

    \b
    Example:
      buoy status

    Exit code: 0 no troubles, 1 there are troubles, 5 store unusable.
    """
    report = go(_report(store))
    if as_json:
        print_json(report)
    else:
        _show(report)
    return Exit.FAILED if report.troubles or report.broken else Exit.OK


async def _report(store: str | None) -> StatusReport:
    async with connected(store) as client:
        return await store_status(client)


def _kind(runner: RunnerFacts) -> str:
    if runner.gone:
        return "dead"
    if runner.doubt is not None:
        return "unknown"
    if hindrance(runner) is not None:
        return "stopped" if runner.stopped else "held up"
    if runner.beat_age_s is None:
        return f"not seen from here (it runs on {runner.host})"
    return "silent" if runner.beat_age_s > 2 * BEAT_S else "alive"


def _last_beat(runner: RunnerFacts) -> str:
    """Empty if the beat was stamped by a clock that cannot be compared with ours."""
    return "" if runner.beat_age_s is None else f", last beat {render.ago(runner.beat_age_s)}"


def _show(report: StatusReport) -> None:
    out = render.console()
    out.print(f"store     {report.store} (schema {report.schema}, buoy {report.buoy})")
    runs = ", ".join(f"{number:,} {name}{' earlier' if name == ENDED else ''}" for name, number in report.runs.items())
    out.print(f"runs      {runs or 'none'}{', and more that ended' if report.more_runs else ''}")
    if report.health:
        of = "" if report.looked_at is None else f" (of the newest {report.looked_at:,})"
        out.print(f"health    {', '.join(f'{number:,} {name}' for name, number in report.health.items())}{of}")
    out.print(f"swept     {report.swept}")
    if report.requests:
        out.print(
            f"requests  {', '.join(f'{number:,} {kind}' for kind, number in report.requests.items())} for this look"
        )
    # Those that react first: a thousand dead runners of one night must not push them out of sight.
    for each in sorted(report.runners, key=lambda runner: runner.gone)[:_RUNNERS_SHOWN]:
        kind = _kind(each)
        knows = f", knows {', '.join(sorted(each.workflows))}" if each.workflows else ""
        holds = f"holds {counted(each.holding, 'run')}"
        out.print(f"{each.role:<9} {runner_text(each)}: {kind}{_last_beat(each)}, {holds}{knows}")
    if len(report.runners) > _RUNNERS_SHOWN:
        out.print(f"and {len(report.runners) - _RUNNERS_SHOWN:,} more runners: `buoy status --json`")
    for text in report.notices[:_TROUBLES_SHOWN]:
        out.print(f"notice    {text}")
    troubles = (*(f"{one.kind} {one.id} cannot be read: {one.reason}" for one in report.broken), *report.troubles)
    if not troubles:
        out.print(Text("no troubles", style="green"))
        return
    out.print(Text(counted(len(troubles), "trouble"), style="red"))
    for text in troubles[:_TROUBLES_SHOWN]:
        out.print(f"  {text}")
    if len(troubles) > _TROUBLES_SHOWN:
        out.print(f"  and {len(troubles) - _TROUBLES_SHOWN} more")
    out.print("what to do about a run: `buoy why RUN`; a closer look at all, with their logs: `buoy why --all`")
