"""Workflows in ordinary unit tests: a store in memory, a runner in this process, and a clock that skips what is waited.

    async def test_checkout():
        async with local_app(checkout) as app:
            run = await app.start(checkout, order)
            await app.answer(run.id, True, (await run.question()).question_id)
            assert await run.result() == "shipped"

Without a plugin for async tests, `LocalApp` (the fixture `buoy_app`) does the same in plain functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar, cast

from buoy.engine.authoring.calls import check_workflow
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.client.client import Client
from buoy.engine.client.run import Run
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.errors import Problem
from buoy.host.ids import SystemIds
from buoy.host.threads import SystemThreads
from buoy.ports.store import Store
from buoy.testing.local_host import (
    Hints,
    KnownDeaths,
    LocalStore,
    Shelf,
    check_no_loop,
    local_worker,
    neighbours,
    runner_info,
    steps_executing,
)
from buoy.testing.person import Person
from buoy.testing.script import Entries, as_script, title_of
from buoy.testing.skipping import Outside, SkippingClock, skipping_time

P = ParamSpec("P")
T = TypeVar("T")

_GRACE_S = 5.0


class Stuck(Problem):
    """Every task waits, and no event is left that could wake one: no timer, no answer, no signal."""


@asynccontextmanager
async def local_app(
    *workflows: Workflow[..., Any],
    clock: SkippingClock | None = None,
    answers: Entries = None,
    shelf: Shelf | None = None,
) -> AsyncIterator[Client]:
    """As `buoy.open`, on a store in memory, with skipped time: a sleep of days takes no time at all.

    Inside, the time of the running loop is that of `clock`. `answers` is a script: who answers and signals what.
    `shelf`: the data of an earlier app, to continue with. Raises `Stuck`, out of the loop, when nothing can ever happen
    any more.
    """
    used, outside = clock or SkippingClock(), Outside()
    hints = Hints(used)
    opened = await (shelf or Shelf("memory")).open(used)
    runner = _runner(workflows, cast(Store, LocalStore(opened, hints, outside)), used)
    outside.also = lambda: runner.step_pool is not None and runner.step_pool._busy > 0
    store = cast(Store, LocalStore(opened, hints, outside))
    client = Client(
        store, runner.registry, clock=used, ids=runner.ids, liveness=KnownDeaths(), runner=runner, actor="test"
    )  # fmt: skip
    person, loop = Person(client, as_script(answers)), asyncio.get_running_loop()

    def nothing_left() -> None:
        raise person.errors[0] if person.errors else Stuck("; ".join([_who_waits(runner), *person.unused]))

    with skipping_time(loop, used, outside, lambda: steps_executing(runner), nothing_left):
        await runner.start()
        helper = loop.create_task(_helped(person, hints), name="buoy-test-person")
        try:
            yield client
        finally:
            helper.cancel()
            await runner.stop("stop", _GRACE_S)


def _runner(workflows: tuple[Workflow[..., Any], ...], store: Store, clock: SkippingClock) -> Runner:
    registry, queues = Registry(), {"default"}
    for workflow in workflows:
        check_workflow(workflow, "a test app")
        found, more = neighbours(workflow)
        queues |= more
        for each in found:
            registry.add(each)
    ids = SystemIds()
    info = runner_info(ids.new("test-"), registry, sorted(queues))
    options = RunnerOptions(step_threads=8)
    return local_worker(store, registry, info, clock, ids, SystemThreads(), options, KnownDeaths()).runner


async def _helped(person: Person, hints: Hints) -> None:
    known = -1
    while True:
        known = await hints.wait(known)
        await person.look()


def _who_waits(runner: Runner) -> str:
    waits = [
        f"run {run_id} waits for {title_of(leaf) or leaf.id}"
        for run_id, execution in runner.executions.items()
        for leaf in execution.state.open.values()
    ]
    said = "; ".join(waits) or "no run waits for anything: the test itself waits for something that never happens"
    return f"nothing can happen any more: {said}"


class LocalApp:
    """An app for plain test functions: `app.run(checkout, order)`. Each call has a loop of its own, the store stays."""

    def __init__(self, clock: SkippingClock | None = None) -> None:
        self.clock = clock or SkippingClock()
        self._shelf = Shelf("memory")

    def run(self, workflow: Workflow[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a workflow to its end and gives its result; raises `RunFailed`, `RunCancelled` or `Stuck`."""
        return self.run_with(None, workflow, *args, **kwargs)

    def run_with(self, answers: Entries, workflow: Workflow[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, with a scripted person who answers and signals."""

        async def whole(app: Client) -> T:
            run: Run[T] = await app.start(workflow, *args, **kwargs)
            return await run.result()

        return self.do(whole, workflow, answers=answers)

    def do(
        self, work: Callable[[Client], Coroutine[Any, Any, T]], *workflows: Workflow[..., Any], answers: Entries = None
    ) -> T:
        """Gives `work`, an async function, an app, and runs it to its end."""
        check_no_loop("LocalApp (use local_app in async tests; this one)")

        async def inside() -> T:
            async with local_app(*workflows, clock=self.clock, answers=answers, shelf=self._shelf) as app:
                return await work(app)

        return asyncio.run(inside())
