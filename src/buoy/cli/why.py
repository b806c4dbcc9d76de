"""`buoy why`: one run in plain words."""

from __future__ import annotations

import click
from rich.text import Text

from buoy.cli.output import print_json
from buoy.cli.program import Exit, connected, go, shared_options, wording
from buoy.cli.render import HEALTH_STYLE, console, local
from buoy.core.explain import Explanation, explain
from buoy.recovery.evidence import crew, facts_of_run


@click.command()
@click.argument("run_id", metavar="RUN")
@shared_options
def why(run_id: str, store: str | None, as_json: bool) -> int:
    """Say in plain words what a run is doing or waiting for.

    What is wrong if anything, on what evidence, what Buoy will do next and when, and what you can do now.

    \b
    Example:
      buoy why order-1

    Exit code: 0 told, 2 no such run, 5 store unusable.
    """
    found = go(_explained(run_id, store))
    if as_json:
        print_json(found)
    else:
        _show(found)
    return Exit.OK


async def _explained(run_id: str, store: str | None) -> Explanation:
    async with connected(store) as client:
        record = await client.record(run_id)
        people = await crew(client.store, client.liveness)
        facts, _ = await facts_of_run(client.store, people, record)
        return explain(facts, wording(store, local))


def _show(found: Explanation) -> None:
    out = console()
    out.print(Text(found.headline, style="bold"))
    if found.now:
        out.print(found.now)
    state = Text("status ").append(found.status, style="cyan").append(", health ")
    out.print(state.append(found.health, style=HEALTH_STYLE[found.health]))
    parts = (("Wrong", found.wrong), ("Evidence", found.evidence), ("Next", found.next), ("You can", found.you_can))
    for title, lines in parts:
        if lines:
            out.print(Text(f"\n{title}", style="bold"))
            for line in lines:
                out.print(f"  {line}")
