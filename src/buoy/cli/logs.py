"""`buoy logs`: what the commands of a spec's run wrote, by step and attempt."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from buoy.cli.terminal.output import print_json
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.cli.terminal.run_ids import run_argument
from buoy.config import log_folder
from buoy.core.ids import RunId
from buoy.core.spec.model import is_spec
from buoy.core.step_logs import LogName, parse_log_name
from buoy.engine.client.client import Client
from buoy.errors import BadInput

_LOOK_S = 0.2
_PIECE_BYTES = 64 * 1024


class LogFile(msgspec.Struct, frozen=True):
    """One attempt's output."""

    leaf: str
    attempt: int
    path: str
    size: int = msgspec.field(name="bytes")


@click.command()
@run_argument
@click.argument("step", metavar="[STEP]", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written from now on, until the run ends.")
@shared_options
def logs(run_id: str, step: str | None, follow: bool, store: str | None, as_json: bool) -> int:
    """Print what the commands of a run wrote: of all steps, or of one (a step, step/module or leaf).

    With --json: which log files there are. Logs are kept on the machine where the command ran.

    \b
    Example:
      buoy logs nightly-1 train_2 --follow

    Exit code: 0 printed, 2 no such run or no such log, 5 store unusable.
    """
    return go(_logs(run_id, step, store, follow=follow, as_json=as_json))


async def _logs(run_id: str, step: str | None, store: str | None, *, follow: bool, as_json: bool) -> int:
    async with connected(store) as client:
        document = (await client.record(run_id)).document
        checked = document.run_id
        folder = log_folder(client.store.name) / checked
        found = _files(folder, step)
        if as_json:
            listed = [LogFile(name.leaf, name.attempt, str(path), path.stat().st_size) for path, name in found]
            print_json({"run_id": checked, "logs": listed})
            return Exit.OK
        if not found and not follow:
            what = "no command of it has written a log" if step is None else f"there is no log of step {step!r}"
            python = (
                "" if is_spec(document.workflow) else "; its steps are Python code, which prints to its worker's output"
            )
            raise BadInput(f"run {checked}: {what} on this machine, in {folder}{python}")
        await _print(client, checked, folder, step, follow=follow)
        return Exit.OK


def _files(folder: Path, step: str | None) -> list[tuple[Path, LogName]]:
    """The log files in the order in which they were begun, as far as their times tell."""
    if not folder.is_dir():
        return []
    named = [(path, parse_log_name(path.name)) for path in folder.iterdir()]
    found = [(path, name) for path, name in named if name is not None and _of_step(name, step)]
    return sorted(found, key=lambda each: (each[0].stat().st_mtime, each[1]))


def _of_step(name: LogName, step: str | None) -> bool:
    if step is None or name.leaf == step:
        return True
    bare = name.leaf.rpartition("#")[0]
    return bare == step or bare.startswith(f"{step}/")


async def _print(client: Client, run_id: RunId, folder: Path, step: str | None, *, follow: bool) -> None:
    shown: dict[Path, int] = {}
    last: Path | None = None
    while True:
        # Before the files are read: what a run wrote before its end is then certainly seen.
        ended = (await client.record(run_id)).document.ended
        files = _files(folder, step)
        for path, name in files:
            if path.stat().st_size <= shown.get(path, -1):
                continue
            if last != path and (len(files) > 1 or follow):
                click.echo(f"==> {name.leaf}, attempt {name.attempt} <==")
            shown[path], last = _copy(path, shown.get(path, 0)), path
        if ended or not follow:
            return
        await asyncio.sleep(_LOOK_S)


def _copy(path: Path, start: int) -> int:
    """Writes the file from there on; where it ended."""
    sys.stdout.flush()
    out = sys.stdout.buffer
    with path.open("rb") as file:
        file.seek(start)
        while piece := file.read(_PIECE_BYTES):
            out.write(piece)
            start += len(piece)
    out.flush()
    return start
