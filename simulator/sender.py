"""Senders: people and programs that start runs and speak to them, from processes without a runner.

They repeat what got no answer, as users must: under the same run id or dedupe id. Refusals are part of the game.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from buoy.core.ids import RunId
from buoy.core.log.document import OpenLeaf
from buoy.core.log.lifecycle import TERMINAL
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.client.client import Client
from buoy.errors import BadInput, Unavailable, UserError
from buoy.operations.maintenance.doctor import Doctor
from buoy.operations.maintenance.purge import Purge, purge
from buoy.ports.records import Message
from simulator.plan import Act, RunPlan
from simulator.process import Process
from simulator.programs import root_of
from simulator.specs import workflow_of
from simulator.workflows import Release

if TYPE_CHECKING:
    from simulator.world import World

_T = TypeVar("_T")

_TRIES = 12


class Sender(Process):
    """A process that starts runs and sends messages."""

    def __init__(
        self, world: World, name: str, release: Release, stack: str | None = None, env: str | None = None
    ) -> None:
        super().__init__(world, name)
        self._serial = count(1)
        self.release = release
        self.client = Client(
            self.open_store(), release.registry(specs=False), clock=self.clock, ids=self.ids,
            liveness=world.liveness, actor=name, stack=stack, env=env,
        )  # fmt: skip

    def begin(self, acts: list[Act]) -> None:
        """Does these things, each at its time or as soon as those before it are done."""
        self.spawn(lambda: self._live(acts))

    async def _live(self, acts: list[Act]) -> None:
        for act in acts:
            await asyncio.sleep(max(0.0, act.at - self.world.kernel.time))
            kin = [run_id for run_id in self.world.known_runs() if root_of(run_id) == act.run]
            if not self.world.faults.on:
                return
            if kin:
                with self.speaking():
                    await self._act(act, kin[int(act.pick * len(kin))])

    async def _act(self, act: Act, run_id: str) -> None:
        self.world.count_act(act.kind)
        match act.kind:
            case "say":
                await self._say(run_id, act.luck)
            case "burst":
                for name in self.world.signal_names(run_id)[:3]:
                    await self._signal(run_id, name)
            case "answer" | "wrong":
                await self.help_on(run_id, wrong=act.kind == "wrong")
            case "forge":
                await self._forge(run_id)
            case "pause":
                await self._try("pause", lambda: self.client.pause(run_id))
            case "resume":
                await self._try("resume", lambda: self.client.resume(run_id))
            case "cancel":
                # A child that is cancelled changes what its parent gets.
                self.world.cancelled.add(root_of(run_id))
                await self._try("cancel", lambda: self.client.cancel(run_id, "no longer wanted"))
            case "jump" | "retry":
                await self._go_back(run_id, act)
            case "purge":
                order = Purge(older_than_s=act.luck * 20.0)
                await self._try("purge", lambda: purge(self.client, order))

    async def _say(self, run_id: str, luck: float) -> None:
        """A signal that may be wanted, perhaps before anybody waits for it, perhaps twice."""
        names = self.world.signal_names(run_id)
        if names:
            await self._signal(run_id, names[int(luck * 10) % len(names)], twice=luck * 10 % 1 < 0.3)

    async def _signal(self, run_id: str, name: str, *, twice: bool = False) -> None:
        dedupe = f"{self.name}-{next(self._serial)}"
        payload = {"value": name, "by": dedupe}
        for _ in range(2 if twice else 1):
            await self._try(f"signal {name}", lambda: self.client.signal(run_id, name, payload, dedupe))

    async def _go_back(self, run_id: str, act: Act) -> None:
        """To any step, or to the one that failed last."""
        leaves = [leaf.id for leaf in self.world.state(run_id).leaves.values() if leaf.kind != "compensation"]
        keep = act.luck * 100 % 1 < 0.3
        dedupe = f"{self.name}-{next(self._serial)}"
        self.world.witness.asks_back(run_id, self.name)
        if act.kind == "retry" and act.luck < 0.6:
            await self._try("retry", lambda: self.client.retry(run_id, keep_answers=keep, dedupe=dedupe))
        elif leaves:
            to = leaves[int(act.luck * 10) % len(leaves)]
            call = self.client.retry if act.kind == "retry" else self.client.jump
            plan = await self._try(f"{act.kind} to {to}", lambda: call(run_id, to, keep_answers=keep, dedupe=dedupe))
            if plan is not None:
                self.world.witness.keeps.setdefault(run_id, {})[plan.branch] = keep
                self.tell(f"{run_id}: {act.kind} to {to}: again {list(plan.again)}, kept {list(plan.kept)}")

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

    async def _forge(self, run_id: str) -> None:
        """An answer that does not fit, by a program that sends it without a check."""
        found = await self._try("look", lambda: self.client.record(run_id))
        for leaf in () if found is None else found.document.open:
            if leaf.kind == "ask" and leaf.question_id is not None:
                body = msgspec.Raw(msgspec.json.encode({"question_id": leaf.question_id, "answer": 17}))
                dedupe = f"{self.name}-{next(self._serial)}"
                message = Message(RunId(run_id), "answer", dedupe, body, by=self.name)
                await self._try("forge", lambda message=message: self.client.store.send(message))  # type: ignore[misc]

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
                if state.pause is not None and state.pause.reason != "version":
                    await self._try("resume", lambda run_id=run_id: self.client.resume(run_id))  # type: ignore[misc]
                await self.help_on(run_id)
            await asyncio.sleep(1.0)


def workflow_and_input(release: Release, run: RunPlan) -> tuple[Workflow[..., Any], msgspec.Raw]:
    """What a planned run is started as, and with."""
    if run.program.op == "spec":
        spec = workflow_of(run.program)
        return spec, spec.arguments.encode((), {"directory": "."})
    workflow = release.started_as(is_async=run.is_async, policy=run.policy)
    return workflow, workflow.arguments.encode((run.program,), {})


async def start_run(process: Process, client: Client, release: Release, run: RunPlan) -> None:
    """Starts a run; again and again, until there is an answer."""
    workflow, stored = workflow_and_input(release, run)
    with process.speaking():
        made = await patiently(process, f"start {run.name}", lambda: client.start_stored(run.name, workflow, stored))
        if made is not None:
            process.tell(f"{run.name}: started")
            process.world.witness.starts[run.name] = process.name


async def heal(process: Process, client: Client) -> None:
    """Runs the doctor: spoiled documents are rebuilt from their logs."""
    with process.speaking():
        doctor = Doctor(client, rebuild=True, progress=_nothing)
        report = await patiently(process, "the doctor's visit", doctor.examine)
        if report is not None:
            process.tell(f"the doctor looked at {report.runs} runs and mended {report.fixed}")


def _nothing(text: str) -> None:
    """Drops the doctor's progress reports."""


async def patiently(process: Process, what: str, work: Callable[[], Awaitable[_T]]) -> _T | None:
    """Does something that may get no answer; None if it was refused, or never answered."""
    for _ in range(_TRIES):
        try:
            return await work()
        except Unavailable:
            await asyncio.sleep(process.rng.random() * 2)
        except UserError as refused:
            process.tell(f"{what}: {type(refused).__name__}: {refused}")
            return None
    process.tell(f"{what}: gave up")
    return None
