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
    profile_folder,
    scheduler_environment,
    scope_variables,
    server_token,
    store_path,
)
from buoy.core.batch.profiles import Profile, live_profile
from buoy.core.batch.slurm_script import ScriptPlace
from buoy.core.diagnosis.facts import ClusterFacts
from buoy.core.ids import RunId
from buoy.core.spec.model import DIRECTORY
from buoy.core.spec.plan import SpecPlan
from buoy.engine.client.client import Client
from buoy.errors import BadInput, CorruptLog
from buoy.host.network_disk import network_kind
from buoy.host.profile_files import KnownProfile, known_profiles, named_profile
from buoy.host.shell.shell import GuardedShell
from buoy.host.slurm import Slurm
from buoy.operations.batch.hook import HookPlace
from buoy.operations.slurm.cluster_look import look_at_cluster
from buoy.operations.slurm.submission import Site


def open_slurm() -> Slurm:
    """The Slurm of this machine."""
    return Slurm(scheduler_environment())


def all_profiles() -> list[KnownProfile]:
    """Every profile of a cluster that this user has."""
    return list(known_profiles(profile_folder()).values())


def one_profile(name: str) -> KnownProfile:
    """That profile, or a refusal that names those that are there."""
    return named_profile(profile_folder(), name)


async def detected_profile() -> tuple[str | None, KnownProfile | None]:
    """Slurm's name for this cluster, if there is one, and the profile that fits it."""
    environment = scheduler_environment()
    try:
        cluster = await open_slurm().cluster_name()
    except BadInput:
        cluster = None
    fitting = (each for each in all_profiles() if each.profile.fits(cluster, environment))
    return cluster, next(fitting, None)


async def made_profile() -> Profile:
    """A profile of what the Slurm of this machine says."""
    slurm = open_slurm()
    return live_profile(await slurm.cluster_name() or "cluster", await slurm.partitions())


async def cluster_facts(client: Client, run_id: str) -> ClusterFacts | None:
    """What Slurm says about the allocations of a batch run; None: it has none, or its log cannot be read."""
    try:
        slurm = open_slurm()
    except BadInput:
        slurm = None
    try:
        document = (await client.record(run_id)).document
        return await look_at_cluster(client, document.run_id, slurm) if document.placement == "batch" else None
    except CorruptLog:
        return None


def slurm_site(client: Client, url: str, run_id: RunId, plan: SpecPlan) -> Site:
    """Where allocations of a run are submitted from, and run: in the folder that the run was submitted from."""
    check_reach(url)
    directory = _directory(plan)
    folder = _folder(plan) / run_id
    variables, token = reach_variables(url)
    place = ScriptPlace(
        python=sys.executable,
        directory=str(directory),
        settings=str(folder / "settings.sh"),
        output_folder=str(folder),
    )
    return Site(client, open_slurm(), GuardedShell(folder.parent, client.clock), place, variables, token)


def check_reach(url: str) -> None:
    """Refuses a store that several machines would share by file locks, which network disks do not keep."""
    path = store_path(url)
    kind = None if path is None else network_kind(path)
    if kind is not None:
        raise BadInput(
            f"the store {path} is on a network disk ({kind}), where runners on several nodes would damage it; "
            "use a server (`buoy serve`, http://) or postgresql://"
        )


def hook_place(client: Client, url: str, plan: SpecPlan) -> HookPlace:
    """Where the hook of a recovery runs: in the folder of the run, on this machine. No Slurm is needed."""
    folder = _folder(plan)
    shell = GuardedShell(folder, client.clock)
    return HookPlace(shell, str(_directory(plan)), str(folder.absolute()), reach_variables(url)[0])


def _directory(plan: SpecPlan) -> Path:
    return Path(str(plan.steps[0].bound[DIRECTORY])) if plan.steps else Path.cwd()


def _folder(plan: SpecPlan) -> Path:
    return _directory(plan) / ".buoy" / "slurm"


def reach_variables(url: str) -> tuple[dict[str, str], str | None]:
    """What a process on another machine needs to reach that store: variables, and a token that belongs into a file."""
    path = store_path(url)
    if path is not None:
        scheme = "file://" if url.startswith("file:") else "sqlite:///"
        url = f"{scheme}{path.absolute()}"
    scope = {name: value for name, value in scope_variables().items() if name != HOST_VARIABLE}
    return {STORE_VARIABLE: url, **scope}, server_token(url) if is_server_url(url) else None
