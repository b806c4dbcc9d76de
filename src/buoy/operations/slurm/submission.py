"""Submission: turns planned allocations into jobs of the scheduler, each once.

Invariants: the intent is durable before sbatch is called, and the job id is recorded after it. An intent of another
process is looked for by its name, twice, before it is submitted: far enough apart that its own sbatch is over. A
failure of sbatch counts as a refusal only if the name is not found afterwards. Of two processes that find the same
intent only one submits it: it takes the intent over by a numbered change.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from buoy.core.batch.allocations import Allocation
from buoy.core.batch.slurm_script import ScriptPlace, batch_script, sbatch_options
from buoy.core.ids import RunId
from buoy.core.log import cluster_changes as c
from buoy.core.log.wording import counted
from buoy.engine.client.client import Client
from buoy.errors import Unavailable
from buoy.operations.batch.jobs import read_batch
from buoy.operations.slurm.cluster_log import ClusterView, add_change, change_cluster, read_view, run_age_s
from buoy.ports.batch import BatchSystem
from buoy.ports.host import Shell

# Between two looks for a job that is not to be found.
LOOKS_APART_S = 3.0
# Longer than sbatch may take: an intent that is as old has no process any more that submits it.
INTENT_S = 45.0
_RECORDED_S = 1.0


class SubmittedAllocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one intent. Without a job id: `problem` says why."""

    name: str
    job_id: str | None = None
    problem: str | None = None


class Site(msgspec.Struct, frozen=True):
    """What a submission needs: the store, the scheduler, where scripts run, and how their runners reach the store.

    `shell` runs commands on this machine: those of actions, and hooks.
    """

    client: Client
    batch: BatchSystem
    shell: Shell
    place: ScriptPlace
    variables: dict[str, str]
    token: str | None = None


async def submit_planned(
    site: Site, run_id: RunId, mine: Collection[str], say: Callable[[str], None] = lambda text: None
) -> list[SubmittedAllocation]:
    """Submits every intent that has no job id. `mine`: those that this process has just recorded."""
    cluster = (await read_view(site.client, run_id)).cluster
    others = {each.name: cluster.planned[each.name] for each in cluster.intents if each.name not in mine}
    if others:
        say(f"planned before: {counted(len(others), 'allocation')}; looking at Slurm by name for {INTENT_S:g} s")
        await _look_twice(site, run_id, others, INTENT_S)
        mine = {*mine, *await _take(site, run_id, others)}
    return await _submit_mine(site, run_id, mine)


async def submit_left(site: Site, run_id: RunId, seen: Mapping[str, int]) -> list[SubmittedAllocation]:
    """Submits intents that two looks at the scheduler, far enough apart, did not find.

    `seen`: the number of the change that planned each, at the first look.
    """
    return await _submit_mine(site, run_id, await _take(site, run_id, seen))


async def _take(site: Site, run_id: RunId, seen: Mapping[str, int]) -> list[str]:
    """Takes over intents of other processes, unless one of them was taken over or submitted since."""
    taken = list[str]()

    def plan(view: ClusterView) -> Sequence[c.ClusterChange]:
        cluster = view.cluster
        free = [each for each in cluster.intents if seen.get(each.name) == cluster.planned[each.name]]
        taken[:] = [each.name for each in free]
        return [c.AllocationPlanned(each.name, each.scheduler) for each in free]

    await change_cluster(site.client, run_id, plan)
    return taken


async def _submit_mine(site: Site, run_id: RunId, mine: Collection[str]) -> list[SubmittedAllocation]:
    view = await read_view(site.client, run_id)
    planned = [each for each in view.cluster.intents if each.name in mine]
    if planned:
        await asyncio.to_thread(write_settings, Path(site.place.settings), site.variables, site.token)
    found, number = [], view.cluster.number
    for each in planned:
        made, number = await _submit(site, run_id, view, each, number)
        found.append(made)
    return found


async def _look_twice(site: Site, run_id: RunId, names: Collection[str], apart_s: float) -> bool:
    """Asks the scheduler twice for these names, and records the ids of those that are found; whether all were.

    In between, another process may record the id of what it has just submitted: then there is no need to wait.
    """
    if await _look(site, run_id, names):
        return True
    until = site.client.clock.monotonic() + apart_s
    while site.client.clock.monotonic() < until:
        await asyncio.sleep(min(_RECORDED_S, apart_s))
        cluster = (await read_view(site.client, run_id)).cluster
        if all(cluster.allocations[name].job_id is not None for name in names):
            return True
    return await _look(site, run_id, names)


async def _look(site: Site, run_id: RunId, names: Collection[str]) -> bool:
    age_s = run_age_s(site.client, await read_batch(site.client, run_id))
    found = (await site.batch.states(names, age_s)).jobs
    ids = {name: c.AllocationSubmitted(name, jobs[0].job_id, jobs[0].cluster) for name, jobs in found.items() if jobs}
    if ids:
        # Another process may have recorded some of them.
        await change_cluster(
            site.client, run_id, lambda view: [ids[each.name] for each in view.cluster.intents if each.name in ids]
        )
    return len(ids) == len(names)


async def _submit(
    site: Site, run_id: RunId, view: ClusterView, allocation: Allocation, number: int
) -> tuple[SubmittedAllocation, int]:
    """What became of it, and the number of the last change by then."""
    scheduler, name = view.cluster.schedulers.get(allocation.scheduler), allocation.name
    if scheduler is None:
        return SubmittedAllocation(name, problem=f"its scheduler {allocation.scheduler} is not recorded"), number
    try:
        options = sbatch_options(name, scheduler, site.place)
        job_id, cluster = await site.batch.submit(options, batch_script(run_id, name, scheduler, site.place))
    except Unavailable as error:
        return await _failed(site, run_id, name, str(error)), number
    change = c.AllocationSubmitted(name, job_id, cluster)
    return SubmittedAllocation(name, job_id), await add_change(site.client, run_id, change, number)


async def _failed(site: Site, run_id: RunId, name: str, problem: str) -> SubmittedAllocation:
    """The scheduler may have taken it anyway."""
    try:
        if await _look_twice(site, run_id, [name], LOOKS_APART_S):
            found = (await read_view(site.client, run_id)).cluster.allocations[name]
            return SubmittedAllocation(name, found.job_id)
    except Unavailable:
        return SubmittedAllocation(name, problem=f"{problem}; the intent stays, submit it again later")
    ended = c.AllocationEnded(name, c.REFUSED)
    await change_cluster(site.client, run_id, lambda view: [ended])
    return SubmittedAllocation(name, problem=problem)


def write_settings(path: Path, variables: dict[str, str], token: str | None) -> None:
    """Writes what a runner needs to reach the store, for this user alone."""
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines = dict(variables)
    if token is not None:
        secret = folder / "token"
        _write_private(secret, f"{token}\n")
        lines["BUOY_TOKEN_FILE"] = str(secret)
    _write_private(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in lines.items()))


def _write_private(path: Path, text: str) -> None:
    """Another file under a name of its own first: a script that reads it now must not see half of it."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_text(text)
    fresh.replace(path)
