"""`buoy workflows`: another name for commands about a whole run."""

from __future__ import annotations

import click

from buoy.cli.sync_status import sync_status


@click.group("workflows")
def workflows_group() -> None:
    """Find commands under the names that another workflow system gives them. Each takes --store and --json.

    \b
    Example:
      buoy workflows sync-status nightly-7c2a --dry-run

    Exit code: 0 done; else that of the command itself.
    """


workflows_group.add_command(sync_status)
