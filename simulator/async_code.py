"""Async code: interprets programs with all the forms of asyncio that users write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

import buoy
from buoy.engine.authoring.definitions import Workflow
from simulator.process import blast
from simulator.programs import Node, declined_by
from simulator.steps import (
    book,
    brittle,
    deadly,
    errand,
    extra,
    labour,
    lease,
    reserve,
    slow,
    stubborn,
    work,
    work_sync,
)


class Names(Protocol):
    """The release that the code belongs to: it calls the workflows of its own."""

    def named(self, name: str) -> Workflow[..., Any]: ...


class AsyncCode:
    """One release of it."""

    def __init__(self, names: Names, *, more: bool, renamed: bool) -> None:
        self._names = names
        self._more = more
        self._work = labour if renamed else work

    async def run(self, node: Node, given: Any) -> Any:
        match node.op:
            case "seq":
                found: list[Any] = []
                for kid in node.kids:
                    found.append(await self.run(kid, found[-1:]))
                return found
            case "gather":
                return await asyncio.gather(*(self.run(kid, given) for kid in node.kids))
            case "group":
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.run(kid, given)) for kid in node.kids]
                return [task.result() for task in tasks]
            case "completed" | "first" | "rest":
                return await self._any_order(node, given)
            case "cleanup":
                try:
                    return [await self.run(kid, given) for kid in node.kids]
                finally:
                    await self._work(f"{node.id}-end", 0.0, node.fails)
        return await self._part(node, given)

    async def _any_order(self, node: Node, given: Any) -> Any:
        if node.op == "completed":
            found = [await each for each in asyncio.as_completed([self.run(kid, given) for kid in node.kids])]
            return sorted(found, key=str)
        tasks = [asyncio.ensure_future(self.run(kid, given)) for kid in node.kids]
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

    async def _part(self, node: Node, given: Any) -> Any:
        match node.op:
            case "step":
                return await _caught(node, self._work(node.id, node.takes_s, node.fails, given))
            case "sync":
                return await _caught(node, work_sync.call(node.id, node.fails, given))
            case "book":
                return await book(node.id)
            case "reserve":
                return await reserve(node.id, node.takes_s)
            case "lease":
                return await lease(node.id)
            case "stubborn":
                return await stubborn(node.id, node.fails)
            case "brittle":
                return await _caught(node, brittle(node.id))
            case "decline":
                raise buoy.Cancelled(declined_by(node.id))
            case "deadly":
                return await deadly(node.id, node.fails, node.takes_s)
            case "mine":
                blast(node.id, node.fails)
            case "errand":
                return await errand(node.id, node.takes_s)
            case "child":
                return await _caught(node, self._names.named(node.name)(node.kids[0]))
            case "spawn":
                await buoy.start_child(self._names.named(node.name), node.kids[0])
            case "slow":
                await _caught(node, slow(node.id, node.takes_s, node.fails))
            case "derive":
                derived = (buoy.now().isoformat(), str(buoy.uuid()), buoy.random().random())
                await self._work(node.id, 0.0, 0, derived)
            case "race":
                return await _race(node)
            case "hurry":
                await self._hurry(node)
            case _:
                return await self._wait(node)
        return node.id

    async def _wait(self, node: Node) -> Any:
        if self._more:
            await extra.call(node.id)
        match node.op:
            case "sleep":
                await (buoy.sleep(node.takes_s) if node.name else asyncio.sleep(node.takes_s))
            case "ask":
                return await asked(node)
            case "signal":
                return (await buoy.wait_signal(node.name))["value"]
            case "signal_or":
                try:
                    came = (await buoy.wait_signal(node.name, timeout=node.limit_s))["value"]
                except TimeoutError:
                    came = "late"
                await self._work(node.id, 0.0, 0, came)
        return node.id

    async def _hurry(self, node: Node) -> None:
        """A step against a time limit: either may win, and what comes next depends on it."""
        try:
            async with asyncio.timeout(node.limit_s):
                how = await self._work(node.id, node.takes_s, 0)
        except TimeoutError:
            how = "late"
        await self._work(f"{node.id}-then", 0.0, 0, how)


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


def asked(node: Node) -> Any:
    """The question of a node, in a workflow of either kind."""
    if node.answer in ("red", "green"):
        return buoy.ask(node.id, options=["red", "green"])
    return buoy.ask(node.id)
