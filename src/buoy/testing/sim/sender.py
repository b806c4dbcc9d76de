"""Senders: people and programs that start runs and speak to them, from processes without a runner.

They repeat what got no answer, as users must: under the same run id or dedupe id. Refusals are part of the game.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING, TypeVar

from buoy.core.document import OpenLeaf
from buoy.core.lifecycle import TERMINAL
from buoy.engine.client import Client
from buoy.engine.definitions import Registry
from buoy.errors import BadInput, Unavailable, UserError
from buoy.testing.sim.plan import RunPlan
from buoy.testing.sim.process import Process
from buoy.testing.sim.programs import root_of
from buoy.testing.sim.workflows import run_async, run_sync

if TYPE_CHECKING:
    from buoy.testing.sim.world import World

_T = TypeVar("_T")

_TRIES = 12
_ACTIONS_MAX = 60


class Sender(Process):
    """A process that starts runs and sends messages."""

    def __init__(self, world: World, name: str, registry: Registry, seed: str) -> None:
        super().__init__(world, name)
        self._rng = Random(seed)
        self._serial = count(1)
        self.client = Client(
            self.open_store(), registry, clock=self.clock, ids=self.ids, liveness=world.liveness, actor=name
        )

    def begin(self) -> None:
        self.spawn(self._talk)

    async def _talk(self) -> None:
        for _ in range(_ACTIONS_MAX):
            await asyncio.sleep(self._rng.expovariate(0.7))
            runs = self.world.known_runs()
            if not self.world.faults.on:
                return
            if runs:
                with self.speaking():
                    await self._act(self._rng.choice(runs))

    async def _act(self, run_id: str) -> None:
        dice = self._rng.random()
        if dice < 0.4:
            await self._say(run_id)
        elif dice < 0.75:
            await self.help_on(run_id, wrong=self._rng.random() < 0.2)
        elif dice < 0.85:
            await self._try("pause", lambda: self.client.pause(run_id))
        elif dice < 0.95:
            await self._try("resume", lambda: self.client.resume(run_id))
        elif self.world.plan.cancels:
            # A child that is cancelled changes what its parent gets.
            self.world.cancelled.add(root_of(run_id))
            await self._try("cancel", lambda: self.client.cancel(run_id, "no longer wanted"))

    async def _say(self, run_id: str) -> None:
        """A signal that may be wanted, perhaps before anybody waits for it, perhaps twice."""
        names = self.world.signal_names(run_id)
        if names:
            await self._signal(run_id, self._rng.choice(names), twice=self._rng.random() < 0.3)

    async def _signal(self, run_id: str, name: str, *, twice: bool = False) -> None:
        dedupe = f"{self.name}-{next(self._serial)}"
        payload = {"value": name, "by": dedupe}
        for _ in range(2 if twice else 1):
            await self._try(f"signal {name}", lambda: self.client.signal(run_id, name, payload, dedupe))

    async def help_on(self, run_id: str, *, wrong: bool = False) -> None:
        """Answers what is asked and signals what is waited for."""
        found = await self._try("look", lambda: self.client.record(run_id))
        if found is None or found.document.ended:
            return
        for leaf in found.document.open:
            if leaf.kind == "ask":
                await self._answer(run_id, leaf, wrong=wrong)
            elif leaf.kind == "signal":
                await self._signal(run_id, leaf.name)

    async def _answer(self, run_id: str, leaf: OpenLeaf, *, wrong: bool) -> None:
        node = self.world.question(run_id, leaf.name)
        if wrong:
            try:
                await self.client.answer(run_id, 17, leaf.question_id)
                self.world.witness.broken("wrong answer", f"{run_id}: 17 was taken as an answer to {leaf.question_id}")
            except (BadInput, UserError, Unavailable) as problem:
                self.tell(f"{run_id}: a wrong answer is refused: {type(problem).__name__}")
            return
        await self._try("answer", lambda: self.client.answer(run_id, node.answer, leaf.question_id))

    async def _try(self, what: str, work: Callable[[], Awaitable[_T]]) -> _T | None:
        return await patiently(self, what, work)

    # ---- at the end

    def finish(self) -> None:
        """Helps every run to its end, when nothing goes wrong any more."""
        self.spawn(self._finish)

    async def _finish(self) -> None:
        while True:
            for run_id in list(self.world.programs):
                state = self.world.state(run_id)
                if state.status is None or state.status in TERMINAL:
                    continue
                if state.pause is not None:
                    await self._try("resume", lambda run_id=run_id: self.client.resume(run_id))  # type: ignore[misc]
                await self.help_on(run_id)
            await asyncio.sleep(1.0)


async def start_run(process: Process, client: Client, run: RunPlan) -> None:
    """Starts a run; again and again, until there is an answer."""
    workflow = run_async if run.is_async else run_sync
    with process.speaking():
        if await patiently(process, f"start {run.run_id}", lambda: client.start_as(run.run_id, workflow, run.program)):
            process.tell(f"{run.run_id}: started")
            process.world.witness.starts[run.run_id] = process.name


async def patiently(process: Process, what: str, work: Callable[[], Awaitable[_T]]) -> _T | None:
    """Does something that may get no answer; None if it was refused, or never answered."""
    for _ in range(_TRIES):
        try:
            return await work()
        except Unavailable:
            await asyncio.sleep(process.world.rng.random() * 2)
        except UserError as refused:
            process.tell(f"{what}: {type(refused).__name__}: {refused}")
            return None
    process.tell(f"{what}: gave up")
    return None
