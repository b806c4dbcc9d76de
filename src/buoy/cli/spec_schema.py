"""`buoy spec-schema`: the JSON Schema of spec files, for editors."""

from __future__ import annotations

import click

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, shared_options
from buoy.core.spec.reader import spec_schema


@click.command()
@shared_options
def spec_schema_command(store: str | None, as_json: bool) -> int:
    """Print the JSON Schema of spec files. Editors use it to complete and to check. Needs no store.

    \b
    Example:
      buoy spec-schema > buoy-spec.json

    Exit code: 0 printed.
    """
    print_json(spec_schema())
    return Exit.OK
