"""`buoy completion`: the script that completes buoy's commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, shared_options

_VARIABLE = "_BUOY_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@shared_options
@click.pass_context
def completion(ctx: click.Context, shell: str, store: str | None, as_json: bool) -> int:
    """Print the completion script for a shell.

    \b
    Example:
      buoy completion bash >> ~/.bashrc

    Exit code: 0 printed, 2 unknown shell.
    """
    made = get_completion_class(shell)
    assert made is not None
    script = made(ctx.find_root().command, {}, "buoy", _VARIABLE).source()
    if as_json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
    return Exit.OK
