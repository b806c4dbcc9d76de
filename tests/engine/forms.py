"""One workflow for each form of asyncio that people use, with the result that it always has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Any

import buoy

from .scripted_steps import after, fails, flaky, never, threaded, work

FORMS: dict[str, tuple[buoy.Workflow[..., Any], Any]] = {}
SOON_S = 0.02


def form(expected: Any) -> Callable[[Callable[..., Any]], buoy.Workflow[..., Any]]:
    def keep(fn: Callable[..., Any]) -> buoy.Workflow[..., Any]:
        FORMS[fn.__name__] = (buoy.workflow(fn), expected)
        return FORMS[fn.__name__][0]

    return keep


@form([1, 2, 3])
async def gather_keeps_the_order_of_its_calls() -> list[int]:
    return list(await asyncio.gather(after("a", "b", 1), after("b", "c", 2), work("c", 3)))


@form([[1, 2], [3, 4], 5])
async def gathers_nest() -> list[Any]:
    async def pair(one: int, other: int) -> list[int]:
        return list(await asyncio.gather(after(f"p{one}", f"p{other}", one), work(f"p{other}", other)))

    return list(await asyncio.gather(pair(1, 2), pair(3, 4), work("e", 5)))


@form([1, "StepFailed:ValueError", 3])
async def gather_can_return_exceptions() -> list[Any]:
    found = await asyncio.gather(work("a", 1), fails("b"), after("c", "b", 3), return_exceptions=True)
    return [f"{type(x).__name__}:{x.type}" if isinstance(x, buoy.StepFailed) else x for x in found]


@form(["b#failed", 7])
async def gather_raises_the_first_error_and_lets_the_others_go_on() -> list[Any]:
    async def slow() -> None:
        seen.append(await after("slow", "late", 7))

    seen: list[Any] = []
    other = asyncio.create_task(slow())
    try:
        await asyncio.gather(other, fails("b"))
    except buoy.StepFailed:
        seen.append("b#failed")
    await work("late")
    await other
    return seen


@form([10, 20, 30])
async def task_group_waits_for_its_tasks() -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(after("a", "b", 10)), group.create_task(work("b", 20))]
        tasks.append(group.create_task(threaded.call("t", 30)))
    return [task.result() for task in tasks]


@form(["cleaned 5", "StepFailed"])
async def task_group_cancels_siblings_which_clean_up() -> list[str]:
    seen: list[str] = []

    async def sibling() -> None:
        try:
            await never("sibling")
        finally:
            seen.append(f"cleaned {await work('clean', 5)}")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(sibling())
            group.create_task(fails("bad"))
    except* buoy.StepFailed as errors:
        seen.extend(type(error).__name__ for error in errors.exceptions)
    return seen


@form(["LookupError", "StepFailed", "after"])
async def errors_of_a_group_come_together() -> list[str]:
    seen: list[str] = []

    async def own() -> None:
        try:
            await never("own")
        except asyncio.CancelledError:
            raise LookupError("own") from None

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(own())
            group.create_task(fails("bad"))
    except* LookupError:
        seen.append("LookupError")
    except* buoy.StepFailed:
        seen.append("StepFailed")
    await work("then")
    return [*seen, "after"]


@form(6)
async def tasks_of_tasks_have_scopes_of_their_own() -> int:
    async def leg(depth: int) -> int:
        if depth == 0:
            return await work("leaf", 1)
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(leg(depth - 1)), group.create_task(leg(depth - 1))]
        return sum(task.result() for task in both)

    total = await leg(2)
    return total + await work("root", 2)


@form([2, 1])
async def created_tasks_are_awaited_later() -> list[int]:
    first = asyncio.create_task(after("first", "second", 1))
    second = await work("second", 2)
    return [second, await first]


@form([["quick"], 1, "cancelled"])
async def wait_for_the_first_completed() -> list[Any]:
    async def named(name: str, call: Any) -> str:
        await call
        return name

    tasks = [asyncio.create_task(named("slow", never("slow"))), asyncio.create_task(named("quick", work("quick")))]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    ends = await asyncio.gather(*pending, return_exceptions=True)
    await work("then")
    return [
        sorted(task.result() for task in done),
        len(pending),
        "cancelled" if isinstance(ends[0], asyncio.CancelledError) else repr(ends),
    ]


@form([1, 2, 3])
async def wait_for_all_completed() -> list[int]:
    tasks = [asyncio.create_task(call) for call in (after("a", "b", 1), after("b", "c", 2), work("c", 3))]
    done, pending = await asyncio.wait(tasks)
    assert not pending
    assert len(done) == 3
    return [task.result() for task in tasks]


@form([True, False])
async def wait_for_the_first_exception() -> list[bool]:
    good, bad = asyncio.create_task(never("good")), asyncio.create_task(fails("bad"))
    done, _ = await asyncio.wait([good, bad], return_when=asyncio.FIRST_EXCEPTION)
    good.cancel()
    return [bad in done and isinstance(bad.exception(), buoy.StepFailed), good in done]


@form([0, 1])
async def wait_with_a_time_limit() -> list[int]:
    slow = asyncio.create_task(never("slow"))
    done, pending = await asyncio.wait([slow], timeout=SOON_S)
    slow.cancel()
    await work("then")
    return [len(done), len(pending)]


@form([3, 2, 1])
async def as_completed_gives_calls_in_the_order_of_their_ends() -> list[int]:
    calls = [after("a", "b", 1), after("b", "c", 2), work("c", 3)]
    return [await each for each in asyncio.as_completed(calls)]


@form(["c", "b", "a", 12])
async def as_completed_takes_coroutines() -> list[Any]:
    async def leg(name: str, other: str | None) -> str:
        await (work(name) if other is None else after(name, other))
        return name

    legs = [leg("a", "b"), leg("b", "c"), leg("c", None)]
    names = [await each for each in asyncio.as_completed(legs)]
    return [*names, await work("then", 12)]


@form(["timeout", 3])
async def a_timeout_fires() -> list[Any]:
    try:
        async with asyncio.timeout(SOON_S):
            await never("slow")
    except TimeoutError:
        return ["timeout", await work("then", 3)]
    return ["in time"]


@form([4, 5])
async def a_timeout_does_not_fire() -> list[int]:
    async with asyncio.timeout(60):
        found = await work("quick", 4)
    return [found, await work("then", 5)]


@form(["inner", "outer"])
async def timeouts_nest() -> list[str]:
    seen = []
    try:
        async with asyncio.timeout(SOON_S * 2):
            try:
                async with asyncio.timeout(SOON_S):
                    await never("one")
            except TimeoutError:
                seen.append("inner")
            await never("two")
    except TimeoutError:
        seen.append("outer")
    return seen


@form(["late", 6])
async def wait_for_fires() -> list[Any]:
    try:
        await asyncio.wait_for(never("slow"), SOON_S)
    except TimeoutError:
        return ["late", await work("then", 6)]
    return ["in time"]


@form(7)
async def wait_for_does_not_fire() -> int:
    return await asyncio.wait_for(work("quick", 7), 60)


@form(["timeout of all", 2])
async def a_timeout_cancels_a_whole_gather() -> list[Any]:
    async def leg(name: str) -> None:
        try:
            await never(name)
        finally:
            cleaned.append(await work(f"clean {name}"))

    cleaned: list[int] = []
    try:
        async with asyncio.timeout(SOON_S):
            await asyncio.gather(leg("a"), leg("b"))
    except TimeoutError:
        await work("then")
    return ["timeout of all", len(cleaned)]


@form(["outer cancelled", 8])
async def a_shielded_call_survives() -> list[Any]:
    inner = asyncio.ensure_future(after("inner", "let", 8))

    async def outer() -> None:
        await asyncio.shield(inner)

    task = asyncio.create_task(outer())
    await work("first")
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        await work("let")
        return ["outer cancelled", await inner]
    return ["not cancelled"]


@form(["set by 1", "seen by 2", "seen by 3"])
async def events_join_tasks() -> list[str]:
    event = asyncio.Event()
    seen = []

    async def waits(n: int) -> None:
        await event.wait()
        await work(f"w{n}")
        seen.append(f"seen by {n}")

    async with asyncio.TaskGroup() as group:
        group.create_task(waits(2))
        group.create_task(waits(3))
        await work("one")
        seen.append("set by 1")
        event.set()
    return sorted(seen, key=lambda text: text[-1])


@form([0, 10, 20, 30])
async def queues_join_tasks() -> list[int]:
    queue: asyncio.Queue[int | None] = asyncio.Queue(maxsize=1)
    got: list[int] = []

    async def produce() -> None:
        for n in range(4):
            await queue.put(await work(f"p{n}", n))
        await queue.put(None)

    async def consume() -> None:
        while (item := await queue.get()) is not None:
            got.append(await work(f"c{item}", item * 10))

    await asyncio.gather(produce(), consume())
    return got


@form([1, 1, 2])
async def locks_and_semaphores_hold() -> list[int]:
    lock, two = asyncio.Lock(), asyncio.Semaphore(2)
    most = {"lock": 0, "two": 0}
    now = {"lock": 0, "two": 0}

    async def inside(gate: Any, name: str, n: int) -> None:
        async with gate:
            now[name] += 1
            most[name] = max(most[name], now[name])
            await work(f"{name}{n}")
            now[name] -= 1

    await asyncio.gather(*(inside(lock, "lock", n) for n in range(3)), *(inside(two, "two", n) for n in range(4)))
    return [await work("then", 1), most["lock"], most["two"]]


@form(["ready", "go", 3])
async def conditions_and_barriers_hold() -> list[Any]:
    condition, barrier = asyncio.Condition(), asyncio.Barrier(3)
    seen: list[Any] = []

    async def waits() -> None:
        async with condition:
            await condition.wait_for(lambda: bool(seen))
            await work("woken")
            seen.append("go")

    async def party(n: int) -> int:
        await work(f"party{n}")
        return await barrier.wait()

    task = asyncio.create_task(waits())
    await work("prepare")
    async with condition:
        seen.append("ready")
        condition.notify_all()
    await task
    places = await asyncio.gather(*(party(n) for n in range(3)))
    return [*seen, len(set(places))]


@form(["short", "long", 2])
async def sleeps_run_at_the_same_time() -> list[Any]:
    seen: list[Any] = []

    async def nap(name: str, span_s: float) -> None:
        await asyncio.sleep(span_s)
        seen.append(name)

    await asyncio.gather(nap("long", SOON_S * 2), nap("short", SOON_S))
    await buoy.sleep("1ms")
    return [*seen, await work("then", 2)]


@form(["cancelled", "cleaned 9", "continue"])
async def a_cancelled_task_cleans_up_with_steps() -> list[str]:
    seen = []

    async def victim() -> None:
        try:
            await never("victim")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            seen.append(f"cleaned {await work('clean', 9)}")

    task = asyncio.create_task(victim())
    await work("first")
    task.cancel()
    await asyncio.wait([task])
    await work("then")
    return [*seen, "continue"]


@form([0, 1, 4, "closed 7"])
async def async_generators_run_to_their_end() -> list[Any]:
    seen: list[Any] = []

    async def squares() -> AsyncIterator[int]:
        try:
            for n in range(3):
                yield await work(f"s{n}", n * n)
        finally:
            seen.append(f"closed {await work('close', 7)}")

    async for value in squares():
        seen.append(value)
    return seen


@form([0, 1, "closed 7", 3])
async def async_generators_can_be_left_early() -> list[Any]:
    seen: list[Any] = []

    async def squares() -> AsyncIterator[int]:
        try:
            for n in range(5):
                yield await work(f"s{n}", n)
        finally:
            seen.append(f"closed {await work('close', 7)}")

    async for value in squares():
        seen.append(value)
        if value == 1:
            break
    then = await work("then", 3)
    await work("and then")
    return [*seen, then]


@form(["in 1", "body 2", "out 3", "last 4"])
async def async_context_managers_have_steps() -> list[str]:
    seen = []

    @asynccontextmanager
    async def room() -> AsyncIterator[None]:
        seen.append(f"in {await work('in', 1)}")
        try:
            yield
        finally:
            seen.append(f"out {await work('out', 3)}")

    async def last() -> None:
        seen.append(f"last {await work('last', 4)}")

    async with AsyncExitStack() as stack:
        stack.push_async_callback(last)
        await stack.enter_async_context(room())
        seen.append(f"body {await work('body', 2)}")
    return seen


@form([[1, 2], [2, 1], [3, 3]])
async def parallel_legs_never_swap_the_results_of_a_shared_step() -> list[list[int]]:
    async def leg(n: int, other: str | None) -> list[int]:
        mine = await (work(f"own{n}", n) if other is None else after(f"own{n}", other, n))
        return [n, await work("shared", mine)]

    found = await asyncio.gather(leg(1, "own2"), leg(2, "own3"), leg(3, None))
    return [[n, {1: 2, 2: 1, 3: 3}[value]] if n == value else ["swapped"] for n, value in found]


@form([2, 3, "ConnectionError"])
async def retries_run_at_the_same_time() -> list[Any]:
    async def tried(name: str, good_from: int) -> Any:
        try:
            return await flaky(name, good_from)
        except buoy.StepFailed as error:
            return error.type

    return list(await asyncio.gather(tried("a", 2), tried("b", 3), tried("c", 4)))


_WHERE: ContextVar[str] = ContextVar("where", default="nowhere")


@form(["leg 1", "leg 2", "root"])
async def context_variables_belong_to_their_task() -> list[str]:
    async def leg(n: int, other: str | None) -> str:
        _WHERE.set(f"leg {n}")
        await (work(f"l{n}") if other is None else after(f"l{n}", other))
        return _WHERE.get()

    _WHERE.set("root")
    legs = await asyncio.gather(leg(1, "l2"), leg(2, None))
    return [*legs, _WHERE.get()]


@form([1, 2])
async def callbacks_and_futures_of_the_loop_work() -> list[int]:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[int] = loop.create_future()
    late: asyncio.Future[int] = loop.create_future()

    async def later() -> None:
        late.set_result(await work("late", 2))

    loop.call_soon(ready.set_result, 1)
    tasks = []
    loop.call_later(SOON_S, lambda: tasks.append(asyncio.ensure_future(later())))
    return [await ready, await late]


@form([5, 5, "done"])
async def tasks_tell_when_they_are_done() -> list[Any]:
    seen: list[Any] = []
    task = asyncio.create_task(after("a", "b", 5))
    task.add_done_callback(lambda done: seen.append(done.result()))
    await work("b")
    seen.append(await task)
    await work("then")
    return [*seen, "done"]


@form("completed although cancelled 4")
async def a_swallowed_cancellation_lets_a_task_complete() -> str:
    async def stubborn() -> str:
        try:
            await never("stubborn")
        except asyncio.CancelledError:
            return f"completed although cancelled {await work('after all', 4)}"
        return "?"

    task = asyncio.create_task(stubborn())
    await work("first")
    task.cancel()
    return await task


@form(["still open"])
async def a_workflow_may_end_before_its_tasks() -> list[str]:
    left = asyncio.create_task(never("background"))
    await work("first")
    return ["still open" if not left.done() else "done"]


@form(list(range(12)))
async def the_set_of_done_tasks_has_one_order() -> list[int]:
    tasks = [asyncio.create_task(work(f"t{n}", n)) for n in range(12)]
    done, _ = await asyncio.wait(tasks)
    # Whatever order the set has, it must be the same at replay: each call's argument depends on it.
    return sorted([await work(f"seen{task.result()}", task.result()) for task in done])


@form(list(range(8)))
async def a_group_cancels_its_tasks_in_one_order() -> list[int]:
    order: list[int] = []

    async def sibling(n: int) -> None:
        try:
            await never(f"s{n}")
        finally:
            order.append(n)
            await work(f"place of {n}", len(order))

    try:
        async with asyncio.TaskGroup() as group:
            for n in range(8):
                group.create_task(sibling(n))
            group.create_task(fails("bad"))
    except* buoy.StepFailed:
        await work("then")
    return sorted(order)


@form(True)
async def as_completed_starts_its_coroutines_in_one_order() -> bool:
    lock = asyncio.Lock()
    order: list[int] = []

    async def leg(n: int) -> int:
        async with lock:
            order.append(n)
            return await work(f"n{n}", len(order))

    by_name = {n: leg(n) for n in range(6, 12)}
    for made in ([leg(n) for n in range(6)], by_name.values(), map(leg, range(12, 18))):
        for each in asyncio.as_completed(made):
            await each
    # Who was first is asyncio's affair, but it must be the same at replay: the arguments depend on it.
    return len(order) == 18


@form([4, 4])
async def pending_tasks_may_be_added_to() -> list[int]:
    first = [asyncio.create_task(work("a")), asyncio.create_task(never("n"))]
    done, pending = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    pending |= {asyncio.create_task(work("b"))}
    pending.update([asyncio.create_task(work("c"))])
    pending.add(asyncio.create_task(work("d")))
    seen = list(pending)
    for task in seen:
        if task not in first:
            await task
    first[1].cancel()
    return [len(seen), len(done | pending) - 1]
