"""`buoy published`: what the steps of a run published, as it is or as it comes."""

from __future__ import annotations

import click

from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import json_line
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.log.codec import encode_plain
from buoy.operations.inspect.published import follow_published


@click.command()
@run_argument
@click.option("--channel", help="Print only values of this channel.")
@click.option("--follow", "-f", is_flag=True, help="Also print new values, until the run ends.")
@click.option(
    "--after", type=click.IntRange(0), default=0, show_default=True, help="Print only values of later events."
)
@shared_options
def published(run_id: str, channel: str | None, follow: bool, after: int, store: str | None, as_json: bool) -> int:
    """Print what the steps of a run published with buoy.publish, one value per line.

    A text is printed as it is, any other value as JSON. With --json: one JSON document per line.

    \b
    Example:
      buoy published order-1 --channel tokens --follow

    Exit code: 0 printed, 2 no such run, 5 store unusable.
    """
    go(_print(run_id, channel, after, store, follow=follow, as_json=as_json))
    return Exit.OK


async def _print(
    run_id: str, channel: str | None, after: int, store: str | None, *, follow: bool, as_json: bool
) -> None:
    async with connected(store) as client:
        async for each in follow_published(client, run_id, channel, after, follow=follow):
            if as_json:
                click.echo(json_line(each))
            else:
                click.echo(each.value if isinstance(each.value, str) else encode_plain(each.value).decode())
