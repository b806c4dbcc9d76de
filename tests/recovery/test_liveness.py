"""Who is dead: two looks across hosts, outages, skewed clocks, and runners of this host that only keep silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.core.limits import BEAT_S, LOOKS_APART_S, LOOKS_SLACK_S, SUSPECT_AFTER_S
from buoy.ports.records import Beat, Evidence, Held, RunnerRecord
from buoy.ports.store import Store
from buoy.recovery.failure_detector import SILENT, FailureDetector
from buoy.stores.objects.folder_store import FolderStore
from buoy.stores.sqlite.store import SqliteStore
from buoy.testing.contracts.harness import Contract, StoreHarness, register
from buoy.testing.deaths import InlineLiveness

RUN, R1 = RunId("run-1"), RunnerId("r1")
KINDS = ("sqlite", "folder")
LOOK_S = 5.0


class SkewedClock:
    """A machine's clocks: its monotonic one goes as all do, its wall clock is wrong by that much."""

    def __init__(self, true: Any, skew_s: float) -> None:
        self._true, self._skew_s = true, skew_s

    def now(self) -> float:
        return float(self._true.now()) + self._skew_s

    def monotonic(self) -> float:
        return float(self._true.monotonic())


class Sight(InlineLiveness):
    """Proof as this test says it: which runners are seen from here, and which of those are gone."""

    def __init__(self, seen: bool = False, gone: bool = False) -> None:
        self._seen, self._gone = seen, gone

    def sees(self, record: RunnerRecord) -> bool:
        return self._seen

    def proof_of_death(self, record: RunnerRecord) -> Evidence | None:
        return {"proof": "lock free"} if self._seen and self._gone else None


class Node:
    """A machine that beats, and one that looks, on the same data."""

    def __init__(self, harness: StoreHarness, store: Store, other: Store) -> None:
        self.harness, self.store, self.other = harness, store, other
        self.detector = FailureDetector(other, Sight(), harness.clock)
        self.number = 0

    async def beat(self) -> bool:
        self.number += 1
        return await self.store.beat(R1, Beat(number=self.number))

    async def look(self) -> Evidence | None:
        records = {record.info.id: record for record in await self.other.runners()}
        return await self.detector.proof(records[R1])

    async def record(self) -> RunnerRecord:
        (record,) = await self.other.runners()
        return record

    async def go_on(self, span_s: float, *, beating: bool = False) -> list[Evidence]:
        """Time passes, with a look every few seconds."""
        found: list[Evidence] = []
        for turn in range(int(span_s / LOOK_S)):
            self.harness.clock.advance(LOOK_S)
            if beating and turn % int(BEAT_S / LOOK_S) == 0:
                assert await self.beat()
            proof = await self.look()
            if proof is not None:
                found.append(proof)
        return found


class _Data(Contract):
    def __init__(self, kind: str, skews_s: tuple[float, float]) -> None:
        self._kind = kind
        self._skews = list(skews_s)

    async def open(self, place: Path, clock: Any) -> Store:
        skewed = SkewedClock(clock, self._skews.pop(0))
        if self._kind == "sqlite":
            return await SqliteStore.open(place / "runs.db", clock=skewed)
        return await FolderStore.open(place / "runs", clock=skewed, durable=False)


@asynccontextmanager
async def nodes(place: Path, kind: str, skews_s: tuple[float, float] = (0.0, 0.0)) -> AsyncIterator[Node]:
    harness = StoreHarness(_Data(kind, skews_s), place)
    try:
        store, other = await harness.open_many(2)
        await register(store, R1)
        await harness.author(RUN).create(store, Held(R1))
        yield Node(harness, store, other)
    finally:
        await harness.close()


def played(test: Callable[[Node], Awaitable[None]], place: Path, kind: str, **more: Any) -> None:
    async def play() -> None:
        async with nodes(place, kind, **more) as node:
            await test(node)

    asyncio.run(play())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("skews_s", [(0.0, 0.0), (7 * 3600.0, 0.0), (-7 * 3600.0, 0.0), (0.0, 90_000.0)])
def test_two_looks_find_a_dead_runner_whatever_the_clocks_say(
    tmp_path: Path, kind: str, skews_s: tuple[float, float]
) -> None:
    async def test(node: Node) -> None:
        assert await node.go_on(300.0, beating=True) == []
        assert await node.go_on(SUSPECT_AFTER_S - BEAT_S) == []
        assert (await node.record()).suspected_beat is None, "silence is not long enough for a first look"
        found = await node.go_on(BEAT_S + LOOKS_APART_S)
        assert (await node.record()).suspected_beat == node.number
        found += await node.go_on(2 * LOOK_S)
        assert found, "it was silent for long, and two looks found the same beat"
        assert (found[0]["proof"], found[0]["beat"]) == (SILENT, node.number)
        assert await node.detector.declare_dead(await node.record(), found[0]) == 1
        run = await node.other.run(RUN)
        assert run is not None and run.holder is None
        assert not await node.beat(), "dead is final"

    played(test, tmp_path, kind, skews_s=skews_s)


@pytest.mark.parametrize("kind", KINDS)
def test_a_runner_that_beats_is_never_dead_whatever_the_clocks_say(tmp_path: Path, kind: str) -> None:
    async def test(node: Node) -> None:
        assert await node.go_on(1_800.0, beating=True) == []
        assert (await node.record()).suspected_beat is None

    played(test, tmp_path, kind, skews_s=(-50_000.0, 0.0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_beat_after_the_first_look_begins_everything_anew(tmp_path: Path, kind: str) -> None:
    async def test(node: Node) -> None:
        assert await node.go_on(SUSPECT_AFTER_S + LOOKS_SLACK_S) == []
        assert (await node.record()).suspected_beat == 0
        assert node.detector.pending == (R1,)
        assert await node.beat()
        assert await node.go_on(SUSPECT_AFTER_S - LOOK_S) == []
        assert node.detector.pending == ()
        assert await node.go_on(LOOKS_APART_S + 3 * LOOK_S) != []

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_beat_between_the_proof_and_the_verdict_saves_the_runner(tmp_path: Path, kind: str) -> None:
    async def test(node: Node) -> None:
        proof = (await node.go_on(SUSPECT_AFTER_S + LOOKS_APART_S + 2 * LOOK_S))[0]
        record = await node.record()
        assert await node.beat()
        assert await node.detector.declare_dead(record, proof) is None
        run = await node.other.run(RUN)
        assert run is not None and run.holder == R1
        assert await node.go_on(60.0) == []

    played(test, tmp_path, kind)


@pytest.mark.parametrize("away_s", [20.0, 3_600.0])
def test_after_an_outage_everybody_gets_a_full_beat(tmp_path: Path, away_s: float) -> None:
    """The first look was written before the store became unavailable. No runner could send a heartbeat during that
    time.
    """

    async def test(node: Node) -> None:
        assert await node.go_on(SUSPECT_AFTER_S + LOOKS_APART_S - LOOK_S) == []
        node.harness.clock.advance(away_s)
        assert await node.look() is None, "the store is back just now"
        assert await node.go_on(BEAT_S) == []
        assert await node.beat()
        assert await node.go_on(60.0) == []

    played(test, tmp_path, "sqlite")


def test_who_does_not_beat_after_an_outage_either_is_dead(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.go_on(SUSPECT_AFTER_S + BEAT_S)
        node.harness.clock.advance(3_600.0)
        assert await node.look() is None
        assert await node.go_on(LOOKS_APART_S + LOOK_S) != []

    played(test, tmp_path, "folder")


def test_a_runner_that_is_seen_from_here_is_not_judged_by_its_silence(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        node.detector = FailureDetector(node.other, Sight(seen=True), node.harness.clock)
        assert await node.go_on(3_600.0) == []
        assert (await node.record()).suspected_beat is None
        node.detector = FailureDetector(node.other, Sight(seen=True, gone=True), node.harness.clock)
        proof = await node.look()
        assert proof == {"proof": "lock free"}
        assert await node.detector.declare_dead(await node.record(), proof) == 1

    played(test, tmp_path, "sqlite")


def test_observers_that_do_not_stay_leave_the_second_look_to_the_next_one(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        def newcomer() -> FailureDetector:
            return FailureDetector(node.other, Sight(), node.harness.clock, once=True)

        node.detector = newcomer()
        assert await node.look() is None
        assert (node.detector.left, node.detector.pending) == ((R1,), ())
        node.harness.clock.advance(300.0)
        assert await node.beat()
        node.detector = newcomer()
        assert await node.look() is None
        assert node.detector.left == (R1,), "it has beaten since: this is a first look again"
        node.harness.clock.advance(300.0)
        node.detector = newcomer()
        assert await node.look() is None
        assert (node.detector.left, node.detector.pending) == ((), (R1,))
        assert await node.go_on(SUSPECT_AFTER_S - LOOK_S) == []
        assert await node.go_on(2 * LOOK_S) != []

    played(test, tmp_path, "folder")


def test_two_observers_prove_it_each_for_itself_and_one_buries(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        late = FailureDetector(node.store, Sight(), node.harness.clock)
        await node.go_on(SUSPECT_AFTER_S + 2 * LOOK_S)
        assert await late.proof(await node.record()) is None
        proof = (await node.go_on(LOOKS_APART_S))[0]
        record = await node.record()
        assert await node.detector.declare_dead(record, proof) == 1
        assert await late.declare_dead(record, proof) in (0, None)

    played(test, tmp_path, "sqlite")


class _KeepsTime:
    """A store with a clock of its own, as a database server has."""

    def __init__(self, below: Store) -> None:
        self._below = below

    has_clock = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


def test_a_store_that_keeps_time_tells_the_silence_but_not_the_second_look(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        node.harness.clock.advance(3_600.0)
        node.detector = FailureDetector(_KeepsTime(node.other), Sight(), node.harness.clock)  # type: ignore[arg-type]
        assert await node.look() is None
        assert (await node.record()).suspected_beat == 0
        assert await node.go_on(LOOKS_APART_S - LOOK_S) == []
        (proof,) = await node.go_on(LOOK_S)
        silent_s = proof["silent_s"]
        assert isinstance(silent_s, float) and silent_s > 3_600.0

    played(test, tmp_path, "sqlite")


def test_what_is_known_of_runners_that_are_no_more_is_forgotten(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        await node.go_on(SUSPECT_AFTER_S + 2 * LOOK_S)
        assert node.detector.pending == (R1,)
        node.detector.forget(set())
        assert node.detector.pending == ()

    played(test, tmp_path, "sqlite")
