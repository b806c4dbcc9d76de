"""Workflows: the code that interprets programs, async and sync, in several releases.

The first release; one that does the same; one that does more, so that a log of the first may not fit it; and one that
renames a step, so that a log fits it only after a migration. Every release gives a run the same result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import buoy
from buoy.engine.authoring.definitions import Registry, Workflow
from simulator.async_code import AsyncCode
from simulator.programs import Node, next_of
from simulator.steps import errand
from simulator.sync_code import SyncCode

FIRST, SAME, MORE, RENAMED = 1, 2, 3, 4

# A run that another system began: its input is unknown.
ADOPTED = Node("seq", "main", (Node("sync", "n1"), Node("sync", "n2")))


class Release:
    """One release of the code: workflows of the same names, with a version of its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        more, renamed = number == MORE, number == RENAMED
        code = AsyncCode(self, more=more, renamed=renamed)
        sync_code = SyncCode(self, more=more, renamed=renamed)

        async def run_async(program: Node) -> Any:
            found = await code.run(program, None)
            if program.again:
                buoy.continue_as_new(next_of(program))
            return found

        def run_sync(program: Node) -> Any:
            found = sync_code.run(program, None)
            if program.again:
                buoy.continue_as_new(next_of(program))
            return found

        async def run_adopted() -> Any:
            return await code.run(ADOPTED, None)

        self.run_async: Workflow[..., Any] = Workflow(run_async, name="sim_async", recovery="resume", queue="default")
        self.run_sync: Workflow[..., Any] = Workflow(run_sync, name="sim_sync", recovery="resume", queue="default")
        self.run_adopted: Workflow[..., Any] = Workflow(
            run_adopted, name="sim_adopted", recovery="resume", queue="default"
        )
        governed: list[Workflow[..., Any]] = [
            Workflow(fn, name=f"{name}_{policy}", recovery=policy, queue="default")
            for policy in ("restart", "fail", "hold")
            for fn, name in ((run_async, "sim_async"), (run_sync, "sim_sync"))
        ]
        mine: list[Workflow[..., Any]] = [self.run_async, self.run_sync, self.run_adopted, *governed]
        for workflow in mine:
            workflow.version = f"release-{number}"
        self.workflows = (*mine, errand.remote)

    def named(self, name: str) -> Workflow[..., Any]:
        return next(each for each in self.workflows if each.name == name)

    def started_as(self, *, is_async: bool, policy: str) -> Workflow[..., Any]:
        """What interprets programs of that kind, under that policy."""
        name = "sim_async" if is_async else "sim_sync"
        return self.named(name if policy == "resume" else f"{name}_{policy}")

    def registry(self, *, specs: bool) -> Registry:
        """What a process of this release knows."""
        made = Registry()
        made.takes_specs = specs
        for workflow in self.workflows:
            made.add(workflow)
        return made


@cache
def release_of(number: int) -> Release:
    """The release of that number. It keeps nothing of a seed, and reading its source takes long."""
    return Release(number)
