"""Copying runs between stores: nothing is lost, nothing executes in two places, and every cut is completed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import LeafId, RunId, child_run_id
from buoy.core.log import events as e
from buoy.engine.client.client import Client
from buoy.engine.client.run import Run
from buoy.errors import BadInput, UnknownRun, WrongState
from buoy.operations.control.schedules import Times, add_schedule
from buoy.operations.maintenance.copy_records import copy_schedules
from buoy.operations.maintenance.copy_runs import _fence, copy_all, copy_run

WITNESS: list[str] = []
CRATE = child_run_id(RunId("parcel-1"), LeafId("crate#1"), 0)
_CHANGES = frozenset({"commit", "send", "import_run", "define", "release", "save_schedule"})


@buoy.step
async def pack(item: str) -> str:
    WITNESS.append(f"pack {item}")
    return f"box of {item}"


@buoy.workflow
async def crate(item: str) -> str:
    box = await pack(item)
    await buoy.wait_signal("lid")
    return box


@buoy.workflow
async def parcel(item: str) -> str:
    box = await crate(item)
    await buoy.wait_signal("sent")
    return f"sent {box}"


def url_of(folder: Path, name: str) -> str:
    return f"sqlite:///{folder / name}.db" if name == "here" else f"file://{folder / name}"


@asynccontextmanager
async def clients(folder: Path, *names: str) -> AsyncIterator[list[Client]]:
    async with buoy.connect(url_of(folder, names[0])) as first, buoy.connect(url_of(folder, names[1])) as second:
        yield [first, second]


async def family_that_waits(folder: Path, name: str = "here") -> None:
    await family_at(url_of(folder, name))


async def family_at(url: str) -> None:
    """A parent and a child that waits for a signal; the signal is sent and not read."""
    async with buoy.open(url, workflows=[parcel, crate]) as app:
        await app.start_as("parcel-1", parcel, "lamp")
        while True:
            child = await app.store.run(CRATE)
            if child is not None and child.document.status == "waiting_signal":
                break
            await app.store.wait_for_change(0.05)
    async with buoy.connect(url) as client:
        await client.signal(CRATE, "lid")


async def ends_there(folder: Path, name: str) -> None:
    await ends_at(url_of(folder, name))


async def ends_at(url: str) -> None:
    async with buoy.open(url, workflows=[parcel, crate]) as app, asyncio.timeout(60):
        await app.signal("parcel-1", "sent")
        assert await Run[str](app, RunId("parcel-1")).result() == "sent box of lamp"


async def is_gone(source: Client, target: Client) -> None:
    for run_id in ("parcel-1", CRATE):
        document = (await source.record(run_id)).document
        assert (document.status, document.moved_to) == ("moved", target.store.name)
        with pytest.raises(WrongState, match="has moved to") as refused:
            await source.signal(run_id, "lid")
        assert target.store.name in str(refused.value)
        log = await source.store.events(RunId(run_id))
        there = await target.store.events(RunId(run_id))
        assert there[: len(log) - 1] == log[:-1]


def test_a_family_moves_with_its_ids_and_messages_and_continues_there(tmp_path: Path) -> None:
    async def play() -> None:
        WITNESS.clear()
        await family_that_waits(tmp_path)
        async with clients(tmp_path, "here", "there") as (here, there):
            told = await copy_run(here, there, CRATE, dry_run=True)
            assert [(each.run_id, each.state) for each in told] == [("parcel-1", "would_move"), (CRATE, "would_move")]
            assert await there.store.run(CRATE) is None
            assert {each.state for each in await copy_run(here, there, CRATE)} == {"moved"}
            await is_gone(here, there)
            assert {each.state for each in await copy_run(here, there, "parcel-1")} == {"complete"}
        await ends_there(tmp_path, "there")
        assert WITNESS == ["pack lamp"]
        async with clients(tmp_path, "here", "there") as (here, there):
            # Repeated when the run has ended there: nothing more.
            assert {each.state for each in await copy_run(here, there, "parcel-1")} == {"complete"}
            with pytest.raises(WrongState, match="ask for its result there"):
                await Run[str](here, RunId("parcel-1")).result()

    asyncio.run(play())


class Cut(BaseException):
    """The process is killed here."""


class Cutting:
    """Hands calls to what is below; the n-th change ends the process, before or after it is made."""

    def __init__(self, below: object, counter: list[int], phase: str) -> None:
        self._below, self._counter, self._phase = below, counter, phase

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._below, name)
        if name in ("archive", "schedules") and not callable(found):
            return Cutting(found, self._counter, self._phase)
        if name not in _CHANGES:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._counter[0] -= 1
            if self._counter[0] == 0 and self._phase == "before":
                raise Cut
            answer = await found(*args, **kwargs)
            if self._counter[0] == 0:
                raise Cut
            return answer

        return call


@pytest.mark.parametrize("phase", ["before", "after"])
def test_a_copy_that_is_cut_off_anywhere_is_completed_by_the_next_one(tmp_path: Path, phase: str) -> None:
    async def cut_at(number: int, folder: Path) -> bool:
        folder.mkdir()
        WITNESS.clear()
        await family_that_waits(folder)
        counter, cut = [number], False
        async with clients(folder, "here", "there") as (here, there):
            here.store, there.store = (Cutting(each.store, counter, phase) for each in (here, there))  # type: ignore[assignment]
            try:
                await copy_run(here, there, "parcel-1")
            except Cut:
                cut = True
        async with clients(folder, "here", "there") as (here, there):
            await copy_run(here, there, "parcel-1")
            await is_gone(here, there)
        await ends_there(folder, "there")
        assert WITNESS == ["pack lamp"]
        return cut

    async def play() -> None:
        number = 1
        while await cut_at(number, tmp_path / f"cut-{number}"):
            number += 1
        assert number >= 6, "two fences, two imports, two resumes"

    asyncio.run(play())


def test_of_two_copies_at_once_to_two_stores_one_wins_each_run(tmp_path: Path) -> None:
    async def play() -> None:
        await family_that_waits(tmp_path)
        async with (
            clients(tmp_path, "here", "left") as (here, left),
            clients(tmp_path, "here", "right") as (again, right),
        ):
            done = await asyncio.gather(
                copy_run(here, left, "parcel-1"), copy_run(again, right, "parcel-1"), return_exceptions=True
            )
            refused = [each for each in done if isinstance(each, BaseException)]
            assert len(refused) == 1 and isinstance(refused[0], WrongState)
            winner = left if isinstance(done[1], BaseException) else right
            await is_gone(here, winner)

    asyncio.run(play())


def test_two_copies_at_once_to_one_store_make_one_run(tmp_path: Path) -> None:
    async def play() -> None:
        WITNESS.clear()
        await family_that_waits(tmp_path)
        async with (
            clients(tmp_path, "here", "there") as (here, there),
            clients(tmp_path, "here", "there") as (again, twin),
        ):
            await asyncio.gather(
                copy_run(here, there, "parcel-1"), copy_run(again, twin, "parcel-1"), return_exceptions=True
            )
            await copy_run(here, there, "parcel-1")
            await is_gone(here, there)
        await ends_there(tmp_path, "there")
        assert WITNESS == ["pack lamp"]

    asyncio.run(play())


def test_a_message_that_reached_the_source_after_the_fence_is_forwarded(tmp_path: Path) -> None:
    async def play() -> None:
        await family_that_waits(tmp_path)
        async with clients(tmp_path, "here", "there") as (here, there):
            (first, *_) = await here.store.inbox(CRATE)
            await copy_run(here, there, "parcel-1")
            late = type(first)(RunId("parcel-1"), first.kind, "late", first.body, first.sent_at, 0, "a slow sender")
            await here.store.send(late)
            await copy_run(here, there, "parcel-1")
            await copy_run(here, there, "parcel-1")
            assert [each.dedupe for each in await there.store.inbox(RunId("parcel-1"))] == ["late"]

    asyncio.run(play())


def test_all_runs_and_schedules_move_and_a_foreign_run_of_the_same_id_is_refused(tmp_path: Path) -> None:
    async def play() -> None:
        await family_that_waits(tmp_path)
        async with buoy.open(url_of(tmp_path, "here"), workflows=[crate]) as app:
            for number in range(3):
                run = await app.start_as(f"alone-{number}", crate, "x")
                await run.signal("lid")
                await run.result()
        async with clients(tmp_path, "here", "there") as (here, there):
            await add_schedule(here, "nightly", crate, msgspec.Raw(b'{"item":"x"}'), Times(every_s=3600))
            assert [each.state for each in await copy_schedules(here, there)] == ["moved"]
            assert [each.state for each in await copy_schedules(here, there)] == ["complete"]
            assert [(each.name, each.active) for each in await there.store.schedules.schedules()] == [("nightly", True)]
            assert [each.active for each in await here.store.schedules.schedules()] == [False]
            moved = [each.run_id async for each in copy_all(here, there)]
            assert sorted(moved) == ["alone-0", "alone-1", "alone-2", "parcel-1", CRATE]
            assert (await there.record("alone-1")).document.status == "completed"
            last = (await here.store.events(RunId("alone-1")))[-1].body
            assert isinstance(last, e.Moved)
            with pytest.raises(UnknownRun):
                await copy_run(here, there, "nobody")
            with pytest.raises(BadInput, match="same store"):
                await copy_run(here, here, "parcel-1")
        await family_that_waits(tmp_path, "third")
        async with clients(tmp_path, "third", "there") as (third, there):
            with pytest.raises(WrongState, match="has a run parcel-1 already"):
                await copy_run(third, there, "parcel-1")
            assert (await third.record("parcel-1")).document.moved_to is None

    asyncio.run(play())


def test_a_family_of_which_a_part_moved_elsewhere_is_left_alone_and_named(tmp_path: Path) -> None:
    """A copy to another store was cut off after its first fence: only the same copy may complete it."""

    async def play() -> None:
        await family_that_waits(tmp_path)
        async with clients(tmp_path, "here", "there") as (here, there):
            await _fence(here, there, RunId("parcel-1"))
        async with clients(tmp_path, "here", "third") as (here, third):
            told = {each.run_id: (each.state, each.to) async for each in copy_all(here, third)}
            there_name = url_of(tmp_path, "there")
            assert told == {"parcel-1": ("elsewhere", there_name), CRATE: ("left", there_name)}
            assert (await here.record(CRATE)).document.moved_to is None
            assert (await third.runs()).runs == ()
        async with clients(tmp_path, "here", "there") as (here, there):
            assert {each.run_id: each.state for each in await copy_run(here, there, CRATE)} == {
                "parcel-1": "moved",
                CRATE: "moved",
            }

    asyncio.run(play())
