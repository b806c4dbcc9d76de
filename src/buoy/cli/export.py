"""`buoy export`: write one run as one file, to look at an incident elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import click

from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.core.bundle.format import Bundle, digest, render
from buoy.core.log.wording import counted
from buoy.errors import BadInput
from buoy.operations.maintenance.bundles import export_run


@click.command("export")
@run_argument
@click.option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--as-found", is_flag=True, help="Keep document and task as they are, for 'buoy import --as-found'.")
@shared_options
def export_command(
    run_id: str, output: str | None, force: bool, as_found: bool, store: str | None, as_json: bool
) -> int:
    """Write one run as a bundle: its log, inbox and document in one JSON file.

    Changes nothing. With --json and --output, standard output describes the file. --as-found includes the holder of
    the task, and keeps a document that disagrees with the log. docs/bundle.md describes the format.

    \b
    Example:
      buoy export order-1 -o order-1.json

    Exit code: 0 written, 1 the log is broken, 2 no such run or bad input, 5 store unusable.
    """
    bundle = go(_exported(run_id, store, as_found=as_found))
    data = render(bundle)
    if output is None:
        click.echo(data, nl=False)
        return Exit.OK
    _write(Path(output), data, force=force)
    if as_json:
        print_json(
            {"run_id": run_id, "file": output, "bytes": len(data), "events": len(bundle.log), "digest": digest(bundle)}
        )
    else:
        what = f"{counted(len(bundle.log), 'event')}, {counted(len(bundle.inbox), 'message')}"
        click.echo(f"{output}: run {run_id}, {what}, {len(data):,} bytes")
    return Exit.OK


async def _exported(run_id: str, store: str | None, *, as_found: bool) -> Bundle:
    async with connected(store) as client:
        return await export_run(client, run_id, as_found=as_found)


def _write(path: Path, data: bytes, *, force: bool) -> None:
    """Writes the whole file or nothing: a truncated bundle looks like a broken run."""
    if path.exists() and not force:
        raise BadInput(f"{path} exists already; name another file, or overwrite it with --force")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
