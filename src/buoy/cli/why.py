"""`buoy why`: one run in plain words, or all that are in trouble, one line each."""

from __future__ import annotations

import click
from rich.text import Text

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options, wording
from buoy.cli.terminal.render import HEALTH_STYLE, console, local
from buoy.core.explain.explain import Explanation
from buoy.core.log.wording import counted
from buoy.errors import BadInput
from buoy.operations.inspect.explanation import explain_run
from buoy.operations.inspect.run_ids import complete_run_id
from buoy.operations.inspect.troubles import TroubleList, all_troubles
from buoy.wiring.slurm import cluster_facts


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--all", "every", is_flag=True, help="List every run that is in trouble, one line each.")
@shared_options
def why(run_id: str | None, every: bool, store: str | None, as_json: bool) -> int:
    """Explain in plain words what a run is doing or waiting for.

    Names what is wrong and the evidence for it, what Buoy does next and when, and what you can do now. For a batch run
    with allocations Slurm is asked once, where its commands are.

    \b
    Example:
      buoy why order-1
      buoy why --all

    Exit code: 0 explained, 1 with --all: there are troubles, 2 no such run, 5 store unusable.
    """
    if (run_id is None) != every:
        raise BadInput("which runs is not clear: give either RUN or --all, for every run in trouble")
    if run_id is None:
        return _print_all(store, as_json=as_json)
    found = go(_explained(run_id, store))
    if as_json:
        print_json(found)
    else:
        _show(found)
    return Exit.OK


async def _explained(run_id: str, store: str | None) -> Explanation:
    async with connected(store) as client:
        # By the same open store: on a server, to open it costs more than the look.
        meant = await complete_run_id(client, run_id)
        cluster = await cluster_facts(client, meant)
        return await explain_run(client, meant, wording(store, local), cluster)


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


def _print_all(store: str | None, *, as_json: bool) -> int:
    found = go(_all(store))
    if as_json:
        print_json(found)
    else:
        out = console()
        if found.store is not None:
            out.print(Text(found.store, style="red"))
        for each in (*found.troubles, *found.notices):
            line = Text(each.run_id, style="bold").append(f"  {each.status or 'unreadable'}  ", style="cyan")
            said = f"  {'notice: ' if each.notice else ''}{each.text}"
            out.print(line.append(each.health, style=HEALTH_STYLE[each.health]).append(said, style=""))
        out.print(Text(f"{counted(len(found.troubles), 'run')} in trouble", style="red" if found.troubles else "green"))
    return Exit.FAILED if found.any else Exit.OK


async def _all(store: str | None) -> TroubleList:
    async with connected(store) as client:
        return await all_troubles(client)
