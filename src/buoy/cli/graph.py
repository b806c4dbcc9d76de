"""`buoy graph`: a run as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.graph.svg import as_svg
from buoy.core.graph.text import as_mermaid, as_text
from buoy.core.graph.view import GraphView
from buoy.errors import BadInput
from buoy.operations.inspect.run_log import run_graph

_DRAW = {"text": as_text, "mermaid": as_mermaid, "svg": as_svg}
_SUFFIXES = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}


@click.command()
@run_argument
@click.option("--format", "form", type=click.Choice(list(_DRAW)), help="Format of the drawing. [by FILE, else text]")
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@click.option("--all", "every", is_flag=True, help="Draw every concurrent part, also identical ones.")
@shared_options
def graph(run_id: str, form: str | None, output: str | None, every: bool, store: str | None, as_json: bool) -> int:
    """Draw the steps and waits of a run: order, concurrent parts, durations, tries and branches.

    Concurrent parts that completed in the same way are drawn once, with their count. --json has every leaf.

    \b
    Example:
      buoy graph order-1 -o order-1.svg

    Exit code: 0 drawn, 1 the log is broken, 2 no such run or bad input, 5 store unusable.
    """
    view = go(_viewed(run_id, store, every=every or as_json))
    drawn = _DRAW[form or _SUFFIXES.get(Path(output or "").suffix.lower(), "text")](view)
    if output is not None:
        try:
            Path(output).write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{output} cannot be written: {error}") from error
    if as_json:
        print_json(view)
    elif output is None:
        say(drawn, nl=False)
    else:
        say(f"wrote {output}", err=True)
    return Exit.OK


async def _viewed(run_id: str, store: str | None, *, every: bool) -> GraphView:
    async with connected(store) as client:
        return await run_graph(client, run_id, every=every)
