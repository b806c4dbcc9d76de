"""A worker or a client whose store loses every tenth answer: `python -m tests.recovery.lossy_process ROLE ...`.

A worker takes URL, SEED and PLACE, and runs until SIGTERM. A client takes a name too, and makes its
requests as a careful caller does. It prints how each of its runs must end, and how many branches and bindings its log
must have.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

import buoy
from buoy.errors import QuestionAnswered, Unavailable, WrongState
from buoy.operations.control.schedules import Times, add_schedule
from tests.lossy import lose_answers, surely
from tests.patience import LOOK_S

SCHEDULE = "ticks"
# How a run must end to which nothing was done.
PLAIN = {"branches": 0, "bound": 0, "status": "completed"}


def witness(place: str) -> str:
    """Says outside of the store under which key a body was executed."""
    key = buoy.idempotency_key()
    with Path(place, "witness").open("a") as out:
        out.write(f"{key}\n")
    return key


@buoy.step
async def work(place: str) -> str:
    return witness(place)


@buoy.step
async def charge(place: str, name: str, n: int) -> int:
    witness(place)
    if Path(place, f"broken-{name}-{n}").exists():
        raise ValueError("not yet")
    return n


@buoy.workflow
async def order(place: str, name: str, n: int) -> int:
    await work(place)
    got: int = await buoy.wait_signal("go")
    return got + await charge(place, name, n)


@buoy.workflow
async def asks(place: str) -> object:
    await work(place)
    return await buoy.ask("Ship?", kind="confirm")


@buoy.workflow
async def family(place: str, name: str) -> int:
    return await child(place, name, 1) + await child(place, name, 2)


@buoy.workflow
async def child(place: str, name: str, n: int) -> int:
    return await charge(place, name, n)


@buoy.workflow
async def tick(place: str) -> str:
    return await work(place)


WORKFLOWS = (order, asks, family, child, tick)


async def worker(url: str, seed: int, place: str) -> None:
    stores = lose_answers(seed)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        try:
            async with buoy.open(url, workflows=WORKFLOWS, options=buoy.RunnerOptions(stop_grace_s=0.5)):
                await stop.wait()
        except Unavailable:
            continue  # as a service that is started again
    print(json.dumps({name: count for each in stores for name, count in each.lost.items()}))


class Caller:
    """Makes each request until it knows that it was made."""

    def __init__(self, app: buoy.Client, place: str, name: str) -> None:
        self.app = app
        self.place = place
        self.name = name
        self.wanted: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        times = Times(every_s=1)
        given = msgspec.Raw(json.dumps({"place": self.place}).encode())
        await surely(lambda _: add_schedule(self.app, SCHEDULE, tick, given, times))
        await asyncio.gather(
            *(self.order(n, each) for n, each in enumerate((self.jump, self.migrate, self.retry, self.cancel))),
            self.question(), self.children(), self.shared(),
        )  # fmt: skip

    async def order(self, n: int, then: Callable[[str, int], Awaitable[dict[str, Any]]]) -> None:
        run_id = await self.start(order, self.place, self.name, n)
        await self.until(run_id, "waiting_signal")
        self.wanted[run_id] = {**PLAIN, "result": 2 * n, **await then(run_id, n)}

    async def start(self, workflow: buoy.Workflow[..., Any], *given: object) -> str:
        """Without an id of its own: an unclear start names the one that it chose."""

        async def call(key: str | None) -> buoy.Run[Any]:
            return await (self.app.start(workflow, *given) if key is None else self.app.start_as(key, workflow, *given))

        return (await surely(call)).id

    async def jump(self, run_id: str, n: int) -> dict[str, Any]:
        await surely(lambda key: self.app.jump(run_id, "work", dedupe=key))
        await self.go(run_id, n)
        return {"branches": 1}

    async def migrate(self, run_id: str, n: int) -> dict[str, Any]:
        await self.ask_for(run_id, self.app.pause, lambda doc: doc.pause is not None)

        async def bind(key: str | None) -> object:
            try:
                return await self.app.migrate(run_id, {}, version=order.version, dedupe=key)
            except WrongState:  # a worker has not let go of it yet
                raise Unavailable("later") from None

        await surely(bind)
        await self.ask_for(run_id, self.app.resume, lambda doc: doc.pause is None)
        await self.go(run_id, n)
        return {"bound": 1}

    async def retry(self, run_id: str, n: int) -> dict[str, Any]:
        broken = Path(self.place, f"broken-{self.name}-{n}")
        broken.touch()
        await self.go(run_id, n)
        await self.until(run_id, "failed")
        broken.unlink()
        await surely(lambda key: self.app.retry(run_id, dedupe=key))
        return {"branches": 1}

    async def cancel(self, run_id: str, n: int) -> dict[str, Any]:
        await self.ask_for(run_id, self.app.cancel, lambda doc: doc.status == "cancelled")
        await self.until(run_id, "cancelled")
        return {"status": "cancelled"}

    async def question(self) -> None:
        run_id = await self.start(asks, self.place)
        await self.until(run_id, "awaiting_input")

        async def answer(_: str | None) -> None:
            try:
                await self.app.answer(run_id, True)
            except (QuestionAnswered, buoy.UnknownQuestion):
                return

        await surely(answer)
        self.wanted[run_id] = {**PLAIN, "result": True}

    async def children(self) -> None:
        run_id = await self.start(family, self.place, f"family-{self.name}")
        self.wanted[run_id] = {**PLAIN, "result": 3}

    async def shared(self) -> None:
        """What another client does at the same time: one run, one signal."""
        await surely(lambda _: self.app.start_as("shared", order, self.place, "shared", 5))

        async def go(_: str | None) -> None:
            try:
                await self.app.signal("shared", "go", 5, dedupe="once")
            except WrongState:
                return  # it has the signal, and ended

        await surely(go)
        self.wanted["shared"] = {**PLAIN, "result": 10}

    async def go(self, run_id: str, n: int) -> None:
        await surely(lambda key: self.app.signal(run_id, "go", n, dedupe=key))

    async def ask_for(self, run_id: str, call: Callable[[str], Awaitable[object]], done: Callable[[Any], bool]) -> None:
        """A request that is refused because it was carried out already is one that was made."""

        async def once(_: str | None) -> None:
            try:
                await call(run_id)
            except WrongState:
                assert done((await self.app.record(run_id)).document)

        await surely(once)

    async def until(self, run_id: str, status: str) -> None:
        while (await surely(lambda _: self.app.record(run_id))).document.status != status:
            await asyncio.sleep(LOOK_S * 10)


async def client(url: str, seed: int, place: str, name: str) -> None:
    # Requests are few: so that each kind of them loses its answer, half of what writes loses it.
    stores = lose_answers(seed, {"commit": 0.5, "send": 0.5, "save_schedule": 0.5})
    async with buoy.connect(url) as app:
        caller = Caller(app, place, name)
        await caller.run()
    print(json.dumps({"wanted": caller.wanted, "lost": stores[0].lost.total()}))


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    asyncio.run((worker if role == "worker" else client)(words[0], int(words[1]), *words[2:]))
