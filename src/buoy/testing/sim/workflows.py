"""Workflows: the code that interprets programs, async and sync, in several releases.

The first release, one that does the same, and one that does more, so that a log of the first may not fit it. Whichever
drives a run, its result is the same.
"""

from __future__ import annotations

from typing import Any

import buoy
from buoy.engine.definitions import Registry, Workflow
from buoy.testing.sim.async_code import AsyncCode
from buoy.testing.sim.programs import Node, next_of
from buoy.testing.sim.steps import errand
from buoy.testing.sim.sync_code import SyncCode

FIRST, SAME, MORE = 1, 2, 3


class Release:
    """One release of the code: workflows of the same names, with a version of its own."""

    def __init__(self, number: int) -> None:
        self.number = number
        code, sync_code = AsyncCode(self, more=number == MORE), SyncCode(self, more=number == MORE)

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

        self.run_async: Workflow[..., Any] = Workflow(run_async, name="sim_async", recovery="resume", queue="default")
        self.run_sync: Workflow[..., Any] = Workflow(run_sync, name="sim_sync", recovery="resume", queue="default")
        self.run_async.version = self.run_sync.version = f"release-{number}"
        self.workflows = (self.run_async, self.run_sync, errand.remote)

    def named(self, name: str) -> Workflow[..., Any]:
        return next(each for each in self.workflows if each.name == name)

    def registry(self, *, specs: bool) -> Registry:
        """What a process of this release knows."""
        made = Registry()
        made.takes_specs = specs
        for workflow in self.workflows:
            made.add(workflow)
        return made
