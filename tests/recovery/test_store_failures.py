"""A store that fails about one run in the middle of a sweep: it is counted and told, that run is left as it was, and
the others are recovered. What was not answered is never taken for absent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import Status
from buoy.errors import CorruptLog, StoreUnusable, Unavailable
from buoy.operations.maintenance.doctor import Doctor
from buoy.ports.records import Held, Orphan, Write
from buoy.ports.store import Store
from buoy.recovery.failure_detector import FailureDetector
from buoy.recovery.recover import recover_run
from buoy.recovery.sweep.reconcile import reconcile
from buoy.recovery.sweep.scan import ScanOptions, scan
from buoy.recovery.sweep.sweep import Sweep, SweepOptions
from tests.core.logbook import claimed, started

from .harness import KINDS, RecoveryHarness, created, play
from .losses import lost_end

NOW = SweepOptions(stale_after_s=0.0)
BAD, GOOD = "run-1", ("run-0", "run-2")
UNDER_WAY = (claimed("r1"), started("a#1"))


def about(given: object) -> Iterable[str]:
    """The runs that a call is about."""
    match given:
        case Write() | Orphan():
            yield given.run_id
        case str():
            yield given
        case list() | tuple():
            for each in given:
                yield from about(each)


class Faulty:
    """Hands every call on, but raises when `call` is about the run, before it is done or after it."""

    def __init__(self, below: Any, call: str, error: Exception, *, after: bool = False) -> None:
        self._below, self._call, self._error, self._after = below, call, error, after
        self.struck = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._below, name)
        if name == "archive":
            part = Faulty(found, self._call, self._error, after=self._after)
            part._strike = self._strike  # type: ignore[method-assign]
            return part
        if name != self._call:
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            hit = BAD in about(args)
            if hit and not self._after:
                self._strike()
            answer = await found(*args, **kwargs)
            if hit:
                self._strike()
            return answer

        return call

    def _strike(self) -> None:
        self.struck += 1
        raise self._error


class Left(NamedTuple):
    """How the runs were left behind, and how one sees that one of them was recovered."""

    plant: Callable[[RecoveryHarness, str], Awaitable[object]]
    back: Callable[[RecoveryHarness, str], Awaitable[bool]]


async def _by_the_dead(harness: RecoveryHarness, run: str) -> None:
    dead = await harness.runner("r1", dead=True) if "r1" not in harness.deaths.dead else RunnerId("r1")
    await harness.left_by(dead, run, created("restart"), *UNDER_WAY)


async def _by_a_stranger(harness: RecoveryHarness, run: str) -> None:
    await harness.plant(run, created(), *UNDER_WAY, task=Held(RunnerId("never-registered")))


async def _with_a_lie(harness: RecoveryHarness, run: str) -> None:
    waited = e.SignalWaited(leaf=started("go#1").leaf, name="go")
    await harness.plant(run, created(), claimed("r1"), waited, lie={"status": Status.RUNNING, "queue": "other"})


async def _branched(harness: RecoveryHarness, run: str) -> bool:
    return "branch_created" in await harness.types(run)


async def _released(harness: RecoveryHarness, run: str) -> bool:
    return (await harness.record(run)).holder is None


async def _rewritten(harness: RecoveryHarness, run: str) -> bool:
    return (await harness.record(run)).document.queue == "default"


async def _written_down(harness: RecoveryHarness, run: str) -> bool:
    return "workflow_recovered" in await harness.types(run)


DEAD, STRANGER = Left(_by_the_dead, _branched), Left(_by_a_stranger, _released)
LIE, LOSS = Left(_with_a_lie, _rewritten), Left(lost_end, _written_down)
CALLS = [
    ("events", DEAD), ("inbox", DEAD), ("run", DEAD), ("commit", DEAD), ("run", STRANGER), ("requeue_orphan", STRANGER),
    ("events", LIE), ("rewrite", LIE), ("rewrite", LOSS), ("commit", LOSS),
]  # fmt: skip
ERRORS = [Unavailable("no answer (a test)"), StoreUnusable("disk full (a test)"), OSError(5, "read error (a test)")]


async def _planted(harness: RecoveryHarness, left: Left) -> None:
    await harness.runner("able", workflows={"order": ("",)})
    for run in sorted((BAD, *GOOD)):
        await left.plant(harness, run)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("call", "left"), CALLS)
def test_a_failure_about_one_run_is_counted_and_hinders_no_other(
    tmp_path: Path, kind: str, call: str, left: Left, error: Exception
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await _planted(harness, left)
        before, log = await harness.record(BAD), await harness.log(BAD)
        faulty = Faulty(harness.store, call, error)
        client = harness.client_of(cast(Store, faulty), "sweeper-0")
        one = Sweep(client, FailureDetector(client.store, harness.deaths, harness.clock), NOW)
        swept = await one.whole()
        assert faulty.struck
        assert (swept.unknown, one.tally.errors > 0) == (1, True), swept
        assert any(BAD in text and "(a test)" in text for text in swept.troubles), swept.troubles
        assert [await left.back(harness, run) for run in GOOD] == [True, True]
        assert (await harness.record(BAD), await harness.log(BAD)) == (before, log), (
            "what was not answered is left as it is"
        )
        again = await Sweep(harness.client, FailureDetector(harness.store, harness.deaths, harness.clock), NOW).whole()
        assert (again.unknown, await left.back(harness, BAD)) == (0, True)

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("call", "left"), [("commit", DEAD), ("requeue_orphan", STRANGER), ("rewrite", LIE), ("commit", LOSS)]
)
def test_a_write_whose_answer_is_lost_is_done_once(tmp_path: Path, kind: str, call: str, left: Left) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await _planted(harness, left)
        faulty = Faulty(harness.store, call, ERRORS[0], after=True)
        client = harness.client_of(cast(Store, faulty), "sweeper-0")
        await Sweep(client, FailureDetector(client.store, harness.deaths, harness.clock), NOW).whole()
        assert faulty.struck
        await Sweep(harness.client, FailureDetector(harness.store, harness.deaths, harness.clock), NOW).whole()
        for run in (BAD, *GOOD):
            types = await harness.types(run)
            assert await left.back(harness, run)
            assert max(types.count("branch_created"), types.count("workflow_recovered")) <= 1, types

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_other_runs_of_a_dead_runner_continue_though_it_cannot_be_declared_dead(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, BAD, created("restart"), *UNDER_WAY)
        for run in GOOD:
            await harness.left_by(dead, run, created(), *UNDER_WAY)
        client = harness.client_of(cast(Store, Faulty(harness.store, "events", ERRORS[0])), "sweeper-0")
        swept = await Sweep(client, FailureDetector(client.store, harness.deaths, harness.clock), NOW).whole()
        assert (swept.resumed, swept.unknown) == (2, 1)
        assert (await harness.record(BAD)).holder == "r1"
        assert await harness.due() == list(GOOD)

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["events", "inbox", "run"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_other_look_tells_it_too_and_changes_nothing(
    tmp_path: Path, kind: str, call: str, error: Exception
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await _planted(harness, STRANGER)
        before = [await harness.record(run) for run in (BAD, *GOOD)]
        faulty = Faulty(harness.store, call, error)
        client = harness.client_of(cast(Store, faulty))
        found = await scan(client, ScanOptions(stale_after_s=0.0))
        assert {each.run_id: each.action for each in found.found} | {BAD: "unknown"} == {
            BAD: "unknown", GOOD[0]: "resume", GOOD[1]: "resume",
        }  # fmt: skip
        report = await Doctor(client, progress=lambda text: None).examine()
        if call != "inbox":
            assert ("R1", BAD) in [(each.code, each.run_id) for each in report.troubles]
        assert [await harness.record(run) for run in (BAD, *GOOD)] == before
        assert faulty.struck

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recovery_of_that_run_alone_says_what_went_wrong(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await _planted(harness, DEAD)
        for call in ("events", "inbox", "commit"):
            for error in (ERRORS[0], ERRORS[1], CorruptLog("torn (a test)")):
                client = harness.client_of(cast(Store, Faulty(harness.store, call, error)))
                found = await recover_run(client, BAD)
                assert (found.action, "(a test)" in (found.error or "")) == ("unknown", True), (call, error)
        assert len(await harness.log(BAD)) == 3

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_that_gives_no_answer_is_not_gone(tmp_path: Path, kind: str) -> None:
    """E2 would hold the run for good."""

    async def test(harness: RecoveryHarness) -> None:
        dead = await harness.runner("r1", dead=True)
        await harness.left_by(dead, BAD, created(workflow="spec:s", version=BAD), claimed("r1"), started("a#1"))
        client = harness.client_of(cast(Store, Faulty(harness.store, "definition", ERRORS[0])))
        found = await recover_run(client, BAD)
        assert found.action == "unknown"
        seen = await recover_run(harness.client, BAD, dry_run=True)
        assert seen.findings[0].code == "E2"

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_that_gives_no_answer_is_not_absent(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        waits = e.ChildStarted(leaf=started("c#1").leaf, workflow="part", child=RunId(BAD), input=msgspec.Raw(b"{}"))
        await harness.plant("parent", created(), claimed("r1"), waits)
        await harness.plant(BAD, created(), claimed("r1"), e.SignalWaited(leaf=started("go#1").leaf, name="go"))
        faulty = Faulty(harness.store, "run", ERRORS[0])
        found = await reconcile(harness.client_of(cast(Store, faulty)))
        assert faulty.struck and found.replayed == 0
        assert any("parent" in text for text in found.troubles)
        assert len(await harness.log("parent")) == 3

    play(tmp_path, test, kind)
