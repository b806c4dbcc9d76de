"""Actions: fires those of a run whose trigger holds now. Allocations are submitted, commands run on this machine.

Invariants: an action is claimed before it has any effect, by a numbered change, so two terminals never fire the same.
Commands are claimed one action at a time, just before they run, and their end is recorded after it. A process that is
killed in between leaves a claim without an end: readers show it, and no command runs a second time by itself.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

import msgspec

from buoy.core.batch.actions import NodeRequest, due_actions, fired, ready_actions
from buoy.core.batch.allocations import ClusterAction
from buoy.core.batch.regenerate import Regenerated
from buoy.core.batch.sizing import Wishes
from buoy.core.batch.slurm_text import Partition
from buoy.core.ids import RunId, leaf_id
from buoy.core.limits import SPEC_ACTIONS_MAX
from buoy.core.log.cluster_changes import ActionEnded, ActionExecuted, ClusterChange
from buoy.errors import CommandFailed
from buoy.operations.slurm.allocate import ask_running, namer, partitions_of
from buoy.operations.slurm.cluster_log import ClusterView, change_cluster, read_view
from buoy.operations.slurm.pending_jobs import jobs_of
from buoy.operations.slurm.submission import Site, SubmittedAllocation, submit_planned
from buoy.ports.host import Command


class ActionsFired(msgspec.Struct, frozen=True):
    """What actions did. `ended`: those whose commands ran."""

    submitted: tuple[SubmittedAllocation, ...] = ()
    ended: tuple[ActionEnded, ...] = ()


async def fire_actions(site: Site, run_id: RunId, wishes: Wishes) -> ActionsFired:
    """Fires every action of a run whose trigger holds."""
    view = await read_view(site.client, run_id)
    due = _due(view)
    submitted: list[SubmittedAllocation] = []
    waiting = (each for each in view.cluster.actions.values() if not each.executed)
    if not view.batch.document.ended and any(each.kind == "schedule_nodes" for each in waiting):
        wanted = any(each.kind == "schedule_nodes" for each in due)
        submitted = await _schedule(site, view, wishes, await partitions_of(site, wishes) if wanted else ())
    ended: list[ActionEnded] = []
    if any(each.kind == "run_commands" for each in due):
        for _ in range(SPEC_ACTIONS_MAX):
            end = await _run_next(site, run_id)
            if end is None:
                break
            ended.append(end)
    return ActionsFired(tuple(submitted), tuple(ended))


def _due(view: ClusterView) -> list[ClusterAction]:
    return due_actions(jobs_of(view), view.batch.plan, view.cluster, ended=view.batch.document.ended)


async def _schedule(
    site: Site, known: ClusterView, wishes: Wishes, partitions: Sequence[Partition]
) -> list[SubmittedAllocation]:
    names, run_id = list[str](), known.batch.document.run_id
    request = NodeRequest(partitions, wishes, namer(site, run_id))
    running = await ask_running(site, known)

    def plan(view: ClusterView) -> Sequence[ClusterChange]:
        view.cluster.note_left(running)
        jobs, changes = jobs_of(view), list[ClusterChange]()
        for action in _due(view) if partitions else ():
            if action.kind == "schedule_nodes":
                changes += fired(action, jobs, view.batch.plan, view.cluster.after(changes), request)
        # What the spec asks for may serve the jobs of the others.
        changes += ready_actions(jobs, view.cluster.after(changes), wishes.allocations_max, request.new_name)
        names[:] = Regenerated(0, (), tuple(changes)).names
        return changes

    await change_cluster(site.client, run_id, plan, known)
    return await submit_planned(site, run_id, names) if names else []


async def _run_next(site: Site, run_id: RunId) -> ActionEnded | None:
    """Claims the next action with commands, runs them, and records their end; None: no action is left."""
    claimed: list[ClusterAction] = []

    def claim(view: ClusterView) -> Sequence[ClusterChange]:
        claimed[:] = [each for each in _due(view) if each.kind == "run_commands"][:1]
        return [ActionExecuted(each.action, begins=True) for each in claimed]

    view, changes = await change_cluster(site.client, run_id, claim)
    if not changes:
        return None
    end = await _run(site, view, claimed[0])
    await change_cluster(site.client, run_id, lambda view: [end])
    return end


async def _run(site: Site, view: ClusterView, action: ClusterAction) -> ActionEnded:
    given, document = action.given, view.batch.document
    assert given is not None
    variables = {
        **site.variables,
        "BUOY_RUN_ID": document.run_id,
        "BUOY_RUN_STATUS": str(document.status),
        "BUOY_ACTION": action.action,
        "BUOY_TRIGGER": action.trigger,
    }
    try:
        async with asyncio.timeout(given.timeout_s):
            for number, text in enumerate(given.commands, 1):
                command = Command(
                    run_id=document.run_id,
                    leaf=leaf_id("", action.action, number),
                    # Unique in the run: after a reset the same action writes another log.
                    attempt=view.cluster.number + 1,
                    command=text,
                    directory=site.place.directory,
                    variables=variables,
                )
                done = await site.shell.run(command)
                if done.exit_code != 0:
                    name = None if done.signal is None else signal.Signals(done.signal).name
                    return ActionEnded(action.action, number, done.exit_code, name, done.tail[-300:])
    except TimeoutError:
        return ActionEnded(action.action, number, problem=f"its commands took longer than {given.timeout_s:g} s")
    except CommandFailed as error:
        return ActionEnded(action.action, number, problem=str(error))
    return ActionEnded(action.action)
