"""The wiring of Slurm: its adapter, and where the scripts of a run's allocations run.

Absent on purpose: any file. Settings are written when an allocation is submitted, so a dry run leaves nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from buoy.config import (
    HOST_VARIABLE,
    STORE_VARIABLE,
    is_server_url,
    scheduler_environment,
    scope_variables,
    server_token,
    store_path,
)
from buoy.core.batch.slurm_script import ScriptPlace
from buoy.core.ids import RunId
from buoy.core.spec.model import DIRECTORY
from buoy.core.spec.plan import SpecPlan
from buoy.engine.client.client import Client
from buoy.host.shell.shell import GuardedShell
from buoy.host.slurm import Slurm
from buoy.operations.slurm.submission import Site


def open_slurm() -> Slurm:
    """The Slurm of this machine."""
    return Slurm(scheduler_environment())


def slurm_site(client: Client, url: str, run_id: RunId, plan: SpecPlan) -> Site:
    """Where allocations of a run are submitted from, and run: in the folder that the run was submitted from."""
    directory = Path(str(plan.steps[0].bound[DIRECTORY])) if plan.steps else Path.cwd()
    folder = directory / ".buoy" / "slurm" / run_id
    variables, token = reach_variables(url)
    place = ScriptPlace(
        python=sys.executable,
        directory=str(directory),
        settings=str(folder / "settings.sh"),
        output_folder=str(folder),
    )
    shell = GuardedShell(folder.parent, client.clock)
    return Site(client, open_slurm(), shell, place, variables, token)


def reach_variables(url: str) -> tuple[dict[str, str], str | None]:
    """What a process on another machine needs to reach that store: variables, and a token that belongs into a file."""
    path = store_path(url)
    if path is not None:
        scheme = "file://" if url.startswith("file:") else "sqlite:///"
        url = f"{scheme}{path.absolute()}"
    scope = {name: value for name, value in scope_variables().items() if name != HOST_VARIABLE}
    return {STORE_VARIABLE: url, **scope}, server_token(url) if is_server_url(url) else None
