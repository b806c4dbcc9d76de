"""Workflows: the code that interprets programs, async and sync, with all the forms of asyncio that users write.

Steps tell the witness when their bodies begin and end, through the process that they find themselves in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import buoy
from buoy.testing.sim.process import here
from buoy.testing.sim.programs import RETRIES, Node


class Flaky(Exception):
    """A step failed, as the program says."""


@buoy.step(retries=RETRIES, backoff=0.3)
async def work(id: str, takes_s: float, fails: int, given: Any = None) -> str:
    with here().body() as attempt:
        if takes_s:
            await asyncio.sleep(takes_s)
        if attempt <= fails:
            raise Flaky(f"{id} fails at attempt {attempt}")
        return id


@buoy.step(retries=RETRIES, backoff=0.3)
def work_sync(id: str, fails: int, given: Any = None) -> str:
    with here().body() as attempt:
        if attempt <= fails:
            raise Flaky(f"{id} fails at attempt {attempt}")
        return id


@buoy.step(retries=1, backoff=0.2, timeout=1.0)
async def slow(id: str, takes_s: float, fails: int) -> str:
    with here().body() as attempt:
        if attempt <= fails:
            await asyncio.sleep(takes_s)
        return id


@buoy.step(retries=1, backoff=0.2)
async def undo(id: str) -> None:
    with here().body() as attempt:
        if id.endswith("3") and attempt == 1:
            raise Flaky(f"{id} cannot be undone at attempt {attempt}")


@buoy.step(compensate=undo)
async def book(id: str) -> str:
    with here().body():
        return id


@buoy.workflow(name="sim_async")
async def run_async(program: Node) -> Any:
    return await _run(program, None)


async def _run(node: Node, given: Any) -> Any:
    match node.op:
        case "seq":
            found: list[Any] = []
            for kid in node.kids:
                found.append(await _run(kid, found[-1:]))
            return found
        case "gather":
            return await asyncio.gather(*(_run(kid, given) for kid in node.kids))
        case "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_run(kid, given)) for kid in node.kids]
            return [task.result() for task in tasks]
        case "completed" | "first" | "rest":
            return await _any_order(node, given)
        case "cleanup":
            try:
                return [await _run(kid, given) for kid in node.kids]
            finally:
                await work(f"{node.id}-end", 0.0, 0)
    return await _part(node, given)


async def _any_order(node: Node, given: Any) -> Any:
    if node.op == "completed":
        found = [await each for each in asyncio.as_completed([_run(kid, given) for kid in node.kids])]
        return sorted(found, key=str)
    tasks = [asyncio.ensure_future(_run(kid, given)) for kid in node.kids]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if node.op == "rest":
        return sorted([await task for task in tasks], key=str)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
    return node.id


async def _part(node: Node, given: Any) -> Any:
    match node.op:
        case "step":
            return await _caught(node, work(node.id, node.takes_s, node.fails, given))
        case "sync":
            return await _caught(node, work_sync.call(node.id, node.fails, given))
        case "book":
            return await book(node.id)
        case "child":
            return await _caught(node, (run_async if node.name == run_async.name else run_sync)(node.kids[0]))
        case "spawn":
            await buoy.start_child(run_async if node.name == run_async.name else run_sync, node.kids[0])
        case "slow":
            await _caught(node, slow(node.id, node.takes_s, node.fails))
        case "derive":
            derived = (buoy.now().isoformat(), str(buoy.uuid()), buoy.random().random())
            await work(node.id, 0.0, 0, derived)
        case "sleep":
            await (buoy.sleep(node.takes_s) if node.name else asyncio.sleep(node.takes_s))
        case "race":
            return await _race(node)
        case "ask":
            return await _asked(node)
        case "signal":
            return (await buoy.wait_signal(node.name))["value"]
        case "signal_or":
            try:
                came = (await buoy.wait_signal(node.name, timeout=node.limit_s))["value"]
            except TimeoutError:
                came = "late"
            await work(node.id, 0.0, 0, came)
        case "hurry":
            await _hurry(node)
    return node.id


async def _caught(node: Node, call: Awaitable[Any]) -> Any:
    try:
        return await call
    except (buoy.StepFailed, buoy.RunFailed, buoy.RunCancelled):
        if not node.catch:
            raise
        return f"{node.id} failed"


async def _race(node: Node) -> str:
    """Two timers: the earlier one wins, however late both are seen."""
    try:
        await asyncio.wait_for(asyncio.sleep(node.takes_s), node.limit_s)
    except TimeoutError:
        return "late"
    return "slept"


async def _hurry(node: Node) -> None:
    """A step against a time limit: either may win, and what comes next depends on it."""
    try:
        async with asyncio.timeout(node.limit_s):
            how = await work(node.id, node.takes_s, 0)
    except TimeoutError:
        how = "late"
    await work(f"{node.id}-then", 0.0, 0, how)


def _asked(node: Node) -> Any:
    if node.answer in ("red", "green"):
        return buoy.ask(node.id, options=["red", "green"])
    return buoy.ask(node.id)


@buoy.workflow(name="sim_sync")
def run_sync(program: Node) -> Any:
    return _run_now(program, None)


def _run_now(node: Node, given: Any) -> Any:
    match node.op:
        case "seq":
            found: list[Any] = []
            for kid in node.kids:
                found.append(_run_now(kid, found[-1:]))
            return found
        case "both":
            return _both(node, given)
        case "step" | "sync" | "child":
            try:
                return _call_now(node, given)
            except (buoy.StepFailed, buoy.RunFailed, buoy.RunCancelled):
                if not node.catch:
                    raise
                return f"{node.id} failed"
        case "book":
            return book.call(node.id).result()
        case "derive":
            work_sync(node.id, 0, (buoy.now().isoformat(), str(buoy.uuid()), buoy.random().random()))
        case "sleep":
            buoy.sleep(node.takes_s)
        case "ask":
            return _asked(node)
        case "signal":
            return buoy.wait_signal(node.name)["value"]
        case "signal_or":
            try:
                came = buoy.wait_signal(node.name, timeout=node.limit_s)["value"]
            except TimeoutError:
                came = "late"
            work_sync(node.id, 0, came)
    return node.id


def _call_now(node: Node, given: Any) -> Any:
    if node.op == "child":
        return (run_async if node.name == run_async.name else run_sync)(node.kids[0])
    if node.op == "sync":
        return work_sync(node.id, node.fails, given)
    return work.call(node.id, node.takes_s, node.fails, given).result()


def _both(node: Node, given: Any) -> Any:
    """Several at the same time; failing ones are tried apart, so that the result does not depend on who is first."""
    well = [kid for kid in node.kids if kid.fails <= RETRIES]
    found = buoy.gather(*(work.call(kid.id, kid.takes_s, kid.fails, given) for kid in well))
    by_id = dict(zip([kid.id for kid in well], found, strict=True))
    return [by_id[kid.id] if kid.id in by_id else _run_now(kid, given) for kid in node.kids]


WORKFLOWS = (run_async, run_sync)
