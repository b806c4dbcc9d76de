"""Step tasks, which execute async bodies: order, contexts, and that no body waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from buoy.engine.services import step_tasks as crew_module
from buoy.engine.services.step_tasks import StepTasks
from tests.patience import PATIENCE_S

PLACE: ContextVar[str] = ContextVar("place", default="nowhere")


class Bare:
    """What step tasks need of a body."""

    def __init__(self, coro: Coroutine[Any, Any, None], place: str) -> None:
        self.task: asyncio.Task[None] | None = None
        self._coro = coro
        self._place = place
        self.crashes: list[Exception] = []

    def crashed(self, error: Exception) -> None:
        self.crashes.append(error)

    async def begin(self) -> None:
        if self._place:
            PLACE.set(self._place)
        await self._coro


def add(step_tasks: StepTasks, coro: Coroutine[Any, Any, None], place: str = "") -> Bare:
    body = Bare(coro, place)
    step_tasks.add(body)
    return body


FACTORIES = ["none", "plain", "eager"] if hasattr(asyncio, "eager_task_factory") else ["none", "plain"]


def plain_factory(loop: Any, coro: Any, **given: Any) -> Any:
    return asyncio.Task(coro, loop=loop, **given)


def play(test: Callable[[StepTasks], Awaitable[None]], factory: str = "none") -> None:
    async def main() -> None:
        step_tasks = StepTasks()
        step_tasks.start()
        testing = asyncio.ensure_future(test(step_tasks))
        if factory == "plain":
            asyncio.get_running_loop().set_task_factory(plain_factory)
        elif factory == "eager":
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        await asyncio.wait_for(testing, PATIENCE_S)

    asyncio.run(main())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("factory", FACTORIES)
def test_bodies_begin_in_the_order_in_which_they_came_and_not_before_the_loop_turns(factory: str) -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[int] = []

        async def body(number: int) -> None:
            seen.append(number)

        for number in range(5):
            add(step_tasks, body(number))
        assert seen == []
        await turns()
        assert seen == [0, 1, 2, 3, 4]

    play(test, factory)


def test_bodies_that_never_wait_share_one_task() -> None:
    async def test(step_tasks: StepTasks) -> None:
        tasks: list[Any] = []

        async def body() -> None:
            tasks.append(asyncio.current_task())

        bodies = [add(step_tasks, body()) for _ in range(3)]
        await turns()
        assert len(set(tasks)) == 1
        assert [each.task for each in bodies] == tasks

    play(test)


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_body_that_waits_keeps_its_task_and_holds_up_nobody(factory: str) -> None:
    async def test(step_tasks: StepTasks) -> None:
        gate, seen = asyncio.Event(), []

        async def waits() -> None:
            await gate.wait()
            seen.append("waited")

        async def quick() -> None:
            seen.append("quick")

        first, second, third = add(step_tasks, waits()), add(step_tasks, quick()), add(step_tasks, waits())
        await turns(10)
        assert seen == ["quick"]
        assert first.task is not second.task and first.task is not third.task
        gate.set()
        await turns()
        assert seen == ["quick", "waited", "waited"]
        assert first.task is not None and first.task.done()

    play(test, factory)


@pytest.mark.parametrize("factory", FACTORIES)
def test_thousands_of_bodies_that_wait_do_not_stand_on_each_other(factory: str) -> None:
    async def test(step_tasks: StepTasks) -> None:
        gate, done = asyncio.Event(), []

        async def waits(number: int) -> None:
            await gate.wait()
            done.append(number)

        for number in range(3_000):
            add(step_tasks, waits(number))
        while step_tasks._queue:
            await asyncio.sleep(0)
        gate.set()
        while len(done) < 3_000:
            await asyncio.sleep(0)
        assert sorted(done) == list(range(3_000))

    play(test, factory)


def test_a_body_that_is_added_by_another_follows_in_the_same_task() -> None:
    async def test(step_tasks: StepTasks) -> None:
        tasks: list[Any] = []

        async def body(left: int) -> None:
            tasks.append(asyncio.current_task())
            if left:
                add(step_tasks, body(left - 1))

        add(step_tasks, body(20))
        await turns()
        assert len(tasks) == 21 and len(set(tasks)) == 1

    play(test)


def test_a_chain_of_bodies_gives_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "SLICE_S", 0.0)

    async def test(step_tasks: StepTasks) -> None:
        order: list[str] = []

        async def body(left: int) -> None:
            order.append("body")
            if left:
                add(step_tasks, body(left - 1))

        add(step_tasks, body(3))
        for _ in range(8):
            order.append("loop")
            await asyncio.sleep(0)
        assert order.count("body") == 4
        assert "body body" not in " ".join(order)

    play(test)


def test_every_body_has_its_own_context_also_after_it_has_waited() -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[tuple[str, str]] = []

        async def body(name: str, pause: bool) -> None:
            before = PLACE.get()
            PLACE.set(f"changed by {name}")
            if pause:
                await asyncio.sleep(0)
                assert PLACE.get() == f"changed by {name}"
            seen.append((name, before))

        add(step_tasks, body("one", False), "first")
        add(step_tasks, body("two", True), "second")
        add(step_tasks, body("three", False))
        await turns()
        assert sorted(seen) == [("one", "first"), ("three", "nowhere"), ("two", "second")]
        assert PLACE.get() == "nowhere"

    play(test)


def test_a_body_sees_no_variable_of_the_body_that_added_it() -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[str] = []

        async def body(left: int) -> None:
            seen.append(PLACE.get())
            PLACE.set("elsewhere")
            await asyncio.sleep(0)
            if left:
                add(step_tasks, body(left - 1))

        add(step_tasks, body(2))
        await turns(10)
        assert seen == ["nowhere"] * 3

    play(test)


def test_a_cancelled_body_takes_no_other_with_it() -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[str] = []

        async def waits() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        async def quick() -> None:
            seen.append("quick")

        body = add(step_tasks, waits())
        add(step_tasks, quick())
        await turns()
        assert body.task is not None
        body.task.cancel()
        add(step_tasks, quick())
        await turns()
        assert seen == ["quick", "cancelled", "quick"]

    play(test)


def test_a_body_that_cancels_its_own_task_leaves_nothing_of_that_to_the_next() -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[str] = []

        async def rash() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

        async def waits() -> None:
            await asyncio.sleep(0)
            seen.append("continued")

        add(step_tasks, rash())
        add(step_tasks, waits())
        await turns(10)
        assert seen == ["continued"]

    play(test)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [RuntimeError("broken"), asyncio.CancelledError()])
def test_an_error_that_leaves_a_body_is_reported_to_it_and_reaches_no_other_body(
    error: BaseException, waits: bool
) -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[str] = []

        async def breaks() -> None:
            if waits:
                await asyncio.sleep(0)
            raise error

        async def quick() -> None:
            seen.append("quick")

        broken = add(step_tasks, breaks())
        add(step_tasks, quick())
        await turns()
        assert seen == ["quick"]
        assert broken.task is not None and broken.task.done()
        assert broken.crashes == ([error] if isinstance(error, RuntimeError) else [])

    play(test)


def test_what_a_body_waits_for_comes_back_to_it_as_value_and_as_error() -> None:
    async def test(step_tasks: StepTasks) -> None:
        loop, seen = asyncio.get_running_loop(), []
        good, bad = loop.create_future(), loop.create_future()

        async def body() -> None:
            seen.append(await good)
            try:
                await bad
            except ValueError as error:
                seen.append(str(error))

        add(step_tasks, body())
        await turns()
        good.set_result("value")
        await turns()
        bad.set_exception(ValueError("error"))
        await turns()
        assert seen == ["value", "error"]

    play(test)


def test_timeouts_and_groups_of_tasks_work_inside_a_body() -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[str] = []

        async def part(name: str) -> None:
            await asyncio.sleep(0)
            seen.append(name)

        async def body() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(part("a"))
                group.create_task(part("b"))
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(3600)
            except TimeoutError:
                seen.append("late")

        body_ = add(step_tasks, body())
        await turns(4)
        assert body_.task is not None
        await body_.task
        assert seen == ["a", "b", "late"]

    play(test)


def test_bodies_are_taken_again_after_somebody_has_cancelled_every_task() -> None:
    async def test(step_tasks: StepTasks) -> None:
        seen: list[str] = []

        async def quick(name: str) -> None:
            seen.append(name)

        before = asyncio.all_tasks()
        add(step_tasks, quick("first"))
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await turns()
        add(step_tasks, quick("second"))
        await turns()
        assert seen == ["first", "second"]

    play(test)


@pytest.mark.parametrize("factory", FACTORIES)
def test_many_bodies_that_wait_begin_in_order_within_few_turns_of_the_loop(factory: str) -> None:
    async def test(step_tasks: StepTasks) -> None:
        begun: list[int] = []
        free = asyncio.Event()

        async def wait(number: int) -> None:
            begun.append(number)
            await free.wait()

        for number in range(64):
            add(step_tasks, wait(number))
        turns = 0
        while len(begun) < 64:
            turns += 1
            await asyncio.sleep(0)
        free.set()
        assert begun == list(range(64))
        assert turns <= 16

    play(test, factory)
