"""The lanes of the journal: how many groups are under way at once, of which runs, and how large they are."""

from __future__ import annotations

import asyncio

import msgspec

from buoy.core.ids import RunId
from buoy.core.limits import COMMIT_BYTES_MAX
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.engine.services.journal import Journal
from buoy.ports.pace import Lanes
from buoy.ports.records import Committed, Outcome, Write
from tests.patience import turns, until

from .test_pieces import NULL, created


class Laned:
    """A store with lanes of its own choice, whose commits wait for those who hold them up."""

    def __init__(self, lanes: Lanes) -> None:
        self.commits_inline = False
        self.lanes = lanes
        self.groups: list[list[str]] = []
        self.held = dict[str, asyncio.Event]()

    async def commit(self, writes: list[Write]) -> list[Outcome]:
        self.groups.append([write.run_id for write in writes])
        for write in writes:
            if write.run_id in self.held:
                await self.held[write.run_id].wait()
        return [Committed(write.events[-1].seq) for write in writes]


async def test_a_slow_commit_holds_up_no_other_run_where_each_has_a_lane() -> None:
    store = Laned(Lanes(groups=8, writes=1))
    journal = Journal(store)  # type: ignore[arg-type]
    journal.start()
    store.held["slow"] = asyncio.Event()
    told: list[str] = []
    for run in ("slow", "a", "b", "slow", "c"):
        journal.submit(created(run, run), lambda outcome, run=run: told.append(run))  # type: ignore[misc]
    await until(lambda: len(told) == 3, "the others to be told")
    assert sorted(told) == ["a", "b", "c"]
    assert store.groups.count(["slow"]) == 1, "of one run one commit is under way"
    store.held["slow"].set()
    await journal.settled()
    assert told[3:] == ["slow", "slow"]
    assert await journal.close()


async def test_a_commit_that_began_at_once_and_has_to_wait_holds_up_no_other_run() -> None:
    store = Laned(Lanes(groups=2, writes=3))
    store.commits_inline = True
    journal = Journal(store, driven=())  # type: ignore[arg-type]
    journal.start()
    store.held["slow"] = asyncio.Event()
    told: list[str] = []
    journal.submit(created("slow", "n"), lambda outcome: told.append("slow"))
    await turns()
    journal.submit(created("a", "n"), lambda outcome: told.append("a"))
    await until(lambda: told == ["a"], "the other to be told")
    store.held["slow"].set()
    await journal.settled()
    assert told == ["a", "slow"]
    assert await journal.close()


async def test_the_write_that_an_outcome_causes_is_committed_where_it_is_submitted() -> None:
    store = Laned(Lanes(groups=2, writes=3))
    store.commits_inline = True
    journal = Journal(store, driven=("lone",))  # type: ignore[arg-type]
    journal.start()
    store.held["first"] = asyncio.Event()
    told: list[str] = []
    at_once: list[bool] = []

    def next_write() -> None:
        journal.submit(created("next", "n"), lambda outcome: told.append("next"))
        at_once.append("next" in told)

    loop = asyncio.get_running_loop()

    def first(outcome: Outcome) -> None:
        # As a step does it: its body begins in a later turn of the loop, before the journal's task has come to rest.
        loop.call_soon(next_write)

    journal.submit(created("first", "n"), first)
    await turns()
    store.held["first"].set()
    await until(lambda: bool(at_once), "the next write to be submitted")
    assert at_once == [True]
    await journal.settled()
    assert await journal.close()


async def test_a_commit_that_an_outcome_begins_is_finished_where_the_store_has_one_lane() -> None:
    store = Laned(Lanes())
    store.commits_inline = True
    journal = Journal(store, driven=("lone",))  # type: ignore[arg-type]
    journal.start()
    store.held = {"first": asyncio.Event(), "next": asyncio.Event()}
    told: list[str] = []

    def first(outcome: Outcome) -> None:
        journal.submit(created("next", "n"), lambda outcome: told.append("next"))

    journal.submit(created("first", "n"), first)
    await turns()
    store.held["first"].set()
    await until(lambda: store.groups == [["first"], ["next"]], "the next commit to begin")
    store.held["next"].set()
    await journal.settled()
    assert told == ["next"]
    assert await journal.close()


async def test_no_more_groups_are_under_way_than_the_store_has_lanes() -> None:
    store = Laned(Lanes(groups=2, writes=3))
    journal = Journal(store)  # type: ignore[arg-type]
    journal.start()
    store.held = {f"r{n}": asyncio.Event() for n in range(12)}
    for n in range(12):
        journal.submit(created(f"r{n}", "n"), lambda outcome: None)
    await until(lambda: len(store.groups) == 2, "both lanes to be taken")
    for run in ("r0", "r1", "r2"):
        store.held[run].set()
    await until(lambda: len(store.groups) == 3, "the freed lane to be taken")
    assert store.groups == [["r0", "r1", "r2"], ["r3", "r4", "r5"], ["r6", "r7", "r8"]]
    assert not await journal.close(patience_s=0.0), "what is under way is given up at last"


async def test_a_group_is_capped_by_its_bytes() -> None:
    store = Laned(Lanes())
    journal = Journal(store)  # type: ignore[arg-type]
    journal.start()
    half = msgspec.Raw(b'"' + b"x" * (COMMIT_BYTES_MAX // 2) + b'"')
    for run, size in (("a", NULL), ("b", half), ("c", half), ("d", NULL), ("e", half), ("f", half)):
        event = e.Event(1, 1.0, e.WorkflowCreated(workflow="w", input=size), nonce="n")
        write = Write(RunId(run), 0, (event,), document(fold(RunId(run), [event])))
        journal.submit(write, lambda outcome: None)
    await journal.settled()
    assert store.groups == [["a", "b"], ["c", "d"], ["e"], ["f"]]
    assert await journal.close()
