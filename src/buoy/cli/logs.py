"""`buoy logs`: the output of the commands of a spec's run, by step and attempt."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from buoy.cli.terminal.options.run_ids import run_argument
from buoy.cli.terminal.output import print_json, say
from buoy.cli.terminal.program import Exit, connected, go, shared_options
from buoy.errors import BadInput
from buoy.operations.inspect.step_logs import StepLogs, log_folder_of, run_ended

_LOOK_S = 0.2
_PIECE_BYTES = 64 * 1024


@click.command()
@run_argument
@click.argument("step", metavar="[STEP]", required=False)
@click.option("--follow", "-f", is_flag=True, help="Also print new output, until the run ends.")
@shared_options
def logs(run_id: str, step: str | None, follow: bool, store: str | None, as_json: bool) -> int:
    """Print the output of a run's commands: of all steps, or of one (a step, step/module or leaf).

    With --json: list the log files. Logs stay on the machine where the command ran.

    \b
    Example:
      buoy logs nightly-1 train_2 --follow

    Exit code: 0 printed, 2 no such run or no such log, 5 store unusable.
    """
    return go(_logs(run_id, step, store, follow=follow, as_json=as_json))


async def _logs(run_id: str, step: str | None, store: str | None, *, follow: bool, as_json: bool) -> int:
    async with connected(store) as client:
        folder = await log_folder_of(client, run_id)
        found = folder.logs(step)
        if as_json:
            print_json(found)
            return Exit.OK
        if not found.logs and not follow:
            what = "no command of it has written a log" if step is None else f"there is no log of step {step!r}"
            python = "" if folder.of_spec else "; its steps are Python code, which prints to its worker's output"
            raise BadInput(f"run {folder.run_id}: {what} on this machine, in {folder.path}{python}")
        shown = Shown(follow=follow)
        while True:
            # Before the files are read: what a run wrote before its end is then certainly seen.
            ended = await run_ended(client, folder.run_id)
            shown.print(folder.logs(step))
            if ended or not follow:
                return Exit.OK
            await asyncio.sleep(_LOOK_S)


class Shown:
    """How much of each file was printed, and which was printed last."""

    def __init__(self, *, follow: bool) -> None:
        self._follow = follow
        self._sizes: dict[str, int] = {}
        self._last: str | None = None

    def print(self, found: StepLogs) -> None:
        """Prints what the files have gained since the last call."""
        for each in found.logs:
            if each.size <= self._sizes.get(each.path, -1):
                continue
            if self._last != each.path and (len(found.logs) > 1 or self._follow):
                say(f"==> {each.leaf}, attempt {each.attempt} <==")
            self._sizes[each.path] = _copy(Path(each.path), self._sizes.get(each.path, 0))
            self._last = each.path


def _copy(path: Path, start: int) -> int:
    """Prints the file from `start`, and returns its end."""
    sys.stdout.flush()
    out = sys.stdout.buffer
    with path.open("rb") as file:
        file.seek(start)
        while piece := file.read(_PIECE_BYTES):
            out.write(piece)
            start += len(piece)
    out.flush()
    return start
