"""The doctor: what is broken in a store is found, told with its code, and mended where the logs allow it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.operations.maintenance.doctor import Doctor
from buoy.operations.maintenance.doctor_report import DoctorReport
from buoy.ports.maintenance import RunCopy, TaskFound
from buoy.ports.records import Ended, Held, Released, Wants
from buoy.testing.contracts.harness import Author, claimed, register, started

KINDS = ("sqlite", "folder")
RUN = RunId("run-1")


def quiet(text: str) -> None:
    """No progress."""


class DoctorHarness:
    """A store with a few runs, and the ways to break it."""

    def __init__(self, client: Client, folder: Path, kind: str) -> None:
        self.client, self.store, self.kind = client, client.store, kind
        self.path = folder / ("runs.db" if kind == "sqlite" else "runs")
        self._nonces = iter(range(1, 10_000))

    async def fill(self) -> None:
        """One that is driven by a living runner, one that waits, one that is due and one that ended."""
        runner = RunnerId("r1")
        self.client.liveness.announce(runner)
        await register(self.store, runner)
        await self.author("driven").create(self.store, Held(runner))
        await (await self.author(RUN).create(self.store, Released(due_at=None, now=0.0))).append(
            self.store, claimed("r1"), started(1), task=Released(due_at=None, now=0.0)
        )
        await self.author("due").create(self.store, Released(due_at=0.0, now=0.0))
        ended = await self.author("ended").create(self.store, Held(runner))
        await ended.append(self.store, claimed("r1"), e.WorkflowCompleted(), task=Ended())

    def author(self, run_id: str) -> Author:
        return Author(RunId(run_id), self.client.clock, self._nonces, {})

    async def truth(self, run_id: RunId = RUN) -> Any:
        return document(fold(run_id, await self.store.events(run_id)))

    async def lie(self, run_id: RunId = RUN, **fields: Any) -> None:
        """The document says something else than the log."""
        truth = await self.truth(run_id)
        assert await self.store.archive.rewrite(run_id, msgspec.structs.replace(truth, **fields), truth.head_seq)

    async def look(self, **how: bool) -> DoctorReport:
        return await Doctor(self.client, **how, progress=quiet).examine()

    def sql(self, statement: str, *values: object) -> None:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute(statement, values)
        connection.close()

    def files(self, prefix: str) -> list[Path]:
        return sorted(path for path in (self.path / prefix).rglob("*") if path.is_file())


def played(test: Callable[[DoctorHarness], Awaitable[None]], folder: Path, kind: str) -> None:
    async def play() -> None:
        url = f"sqlite:///{folder / 'runs.db'}" if kind == "sqlite" else f"file://{folder / 'runs'}"
        async with buoy.connect(url, actor="doctor") as client:
            harness = DoctorHarness(client, folder, kind)
            await harness.fill()
            # The harness's runner says that it lives elsewhere: then nothing is known of it, and nothing is done.
            await test(harness)

    asyncio.run(play())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [{}, {"fix": True}, {"rebuild": True}])
def test_a_sound_store_is_healthy_and_left_as_it_is(tmp_path: Path, kind: str, how: dict[str, bool]) -> None:
    async def test(harness: DoctorHarness) -> None:
        before = {run: await harness.store.run(RunId(run)) for run in ("driven", RUN, "due", "ended")}
        report = await harness.look(**how)
        assert report.healthy and report.counts == {} and report.troubles == ()
        assert all(check.ok for check in report.checks)
        assert {"schema", "durability", "clock"} <= {check.name for check in report.checks}
        assert report.runs == (4 if how.get("rebuild") else 3)
        assert {run: await harness.store.run(RunId(run)) for run in before} == before
        assert await harness.store.claim_tasks(RunnerId("r1"), Wants(), 9) != []

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_that_lies_is_written_anew_from_its_log(tmp_path: Path, kind: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        truth = await harness.truth()
        await harness.lie(status=Status.AWAITING_INPUT, open=(), open_count=0)
        report = await harness.look()
        assert (report.counts, report.left, report.healthy) == ({"R2": 1}, 1, False)
        assert "status = awaiting_input, its log says running" in report.troubles[0].text
        assert (await harness.client.record(RUN)).document != truth, "looking changes nothing"
        log = await harness.store.events(RUN)
        report = await harness.look(fix=True)
        assert (report.counts, report.fixed, report.left, report.rebuilt) == ({"R2": 1}, 1, 0, 1)
        assert (await harness.client.record(RUN)).document == truth
        assert await harness.store.events(RUN) == log
        assert (await harness.look()).counts == {}

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_that_lags_is_no_trouble(tmp_path: Path, kind: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        older = document(fold(RUN, (await harness.store.events(RUN))[:2]))
        assert await harness.store.archive.rewrite(RUN, older, 3)
        report = await harness.look()
        assert (report.healthy, report.lagging) == (True, 1)
        await harness.look(fix=True)
        assert (await harness.look()).lagging == 0

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_seems_to_have_ended_is_found_by_a_rebuild_and_driven_again(tmp_path: Path, kind: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        truth = await harness.truth()
        lie = msgspec.structs.replace(truth, run_id=RunId("lost"), status=Status.COMPLETED)
        events = tuple(await harness.store.events(RUN))
        copy = RunCopy(id="c", document=lie, events=events, found=TaskFound("missing"))
        await harness.store.archive.import_run(copy)
        assert (await harness.look()).counts == {}, "it does not look like an active one"
        report = await harness.look(rebuild=True)
        assert (report.counts, report.left) == ({"R2": 1, "Q1": 1}, 0)
        record = await harness.client.record("lost")
        assert (record.document.status, record.has_task) == ("running", True)
        assert (await harness.look(rebuild=True)).counts == {}

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_all_documents_lost_is_nothing_lost(tmp_path: Path, kind: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        truths = {run: await harness.truth(RunId(run)) for run in ("driven", RUN, "due", "ended")}
        if kind == "sqlite":
            harness.sql("UPDATE runs SET doc = x'00ff'")
        else:
            for path in harness.files("workflow"):
                if path.name == "state.json":
                    path.write_bytes(b"{")
        report = await harness.look(rebuild=True)
        assert (report.left, report.rebuilt) == (0, 4)
        for run, truth in truths.items():
            assert (await harness.client.record(run)).document == truth
        if kind == "sqlite":
            connection = sqlite3.connect(harness.path)
            assert connection.execute("SELECT count(*) FROM runs WHERE json_valid(CAST(doc AS TEXT))").fetchone() == (
                4,
            )
            connection.close()
        assert (await harness.look(rebuild=True)).counts == {}

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("state", "code"), [("missing", "Q1"), ("held", "Q3")])
def test_work_that_nobody_will_do_is_made_due(tmp_path: Path, kind: str, state: Any, code: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        await harness.store.claim_tasks(RunnerId("r1"), Wants(), 9)
        events = tuple(await harness.store.events(RUN))
        lost = msgspec.structs.replace(await harness.truth(), run_id=RunId("lost"))
        task = TaskFound(state, RunnerId("ghost") if state == "held" else None)
        await harness.store.archive.import_run(RunCopy(id="c", document=lost, events=events, found=task))
        report = await harness.look()
        assert (report.counts, report.troubles[0].run_id) == ({code: 1}, "lost")
        assert (await harness.look(fix=True)).left == 0
        taken = await harness.store.claim_tasks(RunnerId("r1"), Wants(), 9)
        assert [each.run_id for each in taken] == ["lost"]

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_a_log_is_counted_and_left(tmp_path: Path, kind: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        told = msgspec.structs.replace(await harness.truth(), run_id=RunId("foreign"))
        await harness.store.archive.import_run(RunCopy(id="c", document=told, events=(), found=TaskFound("missing")))
        report = await harness.look(rebuild=True)
        assert (report.healthy, report.foreign) == (True, 1)
        assert (await harness.client.record("foreign")).document == told

    played(test, tmp_path, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_cannot_be_read_is_told_and_left(tmp_path: Path, kind: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        if kind == "sqlite":
            harness.sql("UPDATE log SET body = '[{' WHERE run = (SELECT number FROM runs WHERE run_id = ?)", RUN)
        else:
            (harness.path / "workflow" / RUN / "log" / "000000000001.json").write_bytes(b"{")
        report = await harness.look(rebuild=True)
        assert (report.counts, report.fixed, report.left) == ({"R1": 1}, 0, 1)
        assert (report.troubles[0].run_id, report.runs) == (RUN, 4)

    played(test, tmp_path, kind)


SQLITE_DAMAGE = [
    ("DROP INDEX tasks_due", "tasks_due"),
    ("UPDATE tasks SET inbox_head = 7 WHERE run_id = 'run-1'", "counts 7 messages"),
    ("UPDATE runs SET orchestrator_task_id = 'x' WHERE run_id = 'due'", "names x"),
    ("UPDATE runs SET status = 'paused' WHERE run_id = 'run-1'", "is listed as paused"),
    ("UPDATE runs SET doc = x'00' WHERE run_id = 'run-1'", "no JSON"),
    ("""INSERT INTO tasks (run, task_id, run_id, workflow, queue, seen, inbox_head, cause, evidence)
        VALUES (99, 't', 'gone', 'w', 'default', 0, 0, 'woken', '{}')""", "which is no run of this store"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "text"), SQLITE_DAMAGE)
def test_what_repeats_the_truth_in_sqlite_follows_it_again(tmp_path: Path, damage: str, text: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        harness.sql(damage)
        report = await harness.look()
        assert not report.healthy and any(text in each.text for each in report.troubles), report.troubles
        report = await harness.look(fix=True)
        assert report.healthy, report.troubles
        assert (await harness.look(rebuild=True)).counts == {}

    played(test, tmp_path, "sqlite")


def test_events_of_no_run_are_told_and_kept(tmp_path: Path) -> None:
    async def test(harness: DoctorHarness) -> None:
        harness.sql("DELETE FROM runs WHERE run_id = 'ended'")
        assert (await harness.look()).healthy
        report = await harness.look(rebuild=True)
        assert (report.counts, report.left) == ({"index": 1}, 1)
        assert "they are kept" in report.troubles[0].text

    played(test, tmp_path, "sqlite")


@pytest.mark.parametrize("prefix", ["active", "tasks", "held", "parked", "index"])
def test_truth_without_its_index_entry_gets_it_back(tmp_path: Path, prefix: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        before = harness.files(prefix)
        assert before
        deep = prefix in ("active", "index")
        for path in before:
            path.unlink()
        report = await harness.look(rebuild=True) if deep else await harness.look()
        assert not report.healthy if not deep else report.fixed >= len(before)
        await harness.look(fix=True)
        if prefix != "held":
            assert harness.files(prefix) == before
        assert (await harness.look(rebuild=True)).counts == {}

    played(test, tmp_path, "folder")


def test_entries_that_point_at_nothing_are_removed_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    real = asyncio.sleep

    async def sleep(span_s: float) -> None:
        waited.append(span_s)
        await real(0)

    async def test(harness: DoctorHarness) -> None:
        monkeypatch.setattr("buoy.operations.maintenance.doctor.asyncio.sleep", sleep)
        sound = {prefix: harness.files(prefix) for prefix in ("active", "tasks", "held", "wake", "living")}
        for name in (
            "active/00000000000000001~nobody~000000000001",
            "tasks/default/0000000001/00000000000060000~nobody~000000000001-000000~abc",
            "held/r9/nobody~000000000001-000000",
            "held/r9/run-1~000000000001-000000",
            "wake/nobody~000000000001",
            "living/r9",
        ):
            path = harness.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
        report = await harness.look()
        assert (report.counts, report.fixed, report.stale) == ({"index": 5}, 0, 1)
        assert max(waited) < 2.0, "a look alone waits for nothing"
        report = await harness.look(fix=True)
        # A search for orphans removes entries that the truth has passed, as every sweep does.
        assert (report.fixed, report.left) == (5, 0)
        assert max(waited) > 60.0, "their writer may be about to write the rest"
        assert {prefix: harness.files(prefix) for prefix in sound} == sound

    played(test, tmp_path, "folder")


def test_what_is_only_under_way_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is there at the first look and gone at the second."""

    async def test(harness: DoctorHarness) -> None:
        path = harness.path / "active" / "00000000000000001~nobody~000000000001"
        path.write_bytes(b"{}")

        async def sleep(span_s: float) -> None:
            path.unlink(missing_ok=True)

        monkeypatch.setattr("buoy.operations.maintenance.doctor.asyncio.sleep", sleep)
        assert (await harness.look()).counts == {}

    played(test, tmp_path, "folder")


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_was_set_back_is_told(tmp_path: Path, kind: str) -> None:
    async def test(harness: DoctorHarness) -> None:
        late = harness.author("late")
        write = late.first(Released(due_at=None, now=0.0))
        future = harness.client.clock.now() + 7_200.0
        events = tuple(msgspec.structs.replace(event, at=future) for event in write.events)
        told = document(fold(RunId("late"), events))
        await harness.store.commit([msgspec.structs.replace(write, events=events, document=told)])
        report = await harness.look(fix=True)
        assert (report.counts, report.left) == ({"store": 1}, 1)
        assert "ahead of this machine's clock" in report.troubles[0].text

    played(test, tmp_path, kind)


def test_a_dead_runner_that_is_still_registered_is_declared_dead(tmp_path: Path) -> None:
    async def test(harness: DoctorHarness) -> None:
        async with buoy.open(harness.store.name) as app:
            assert app.runner is not None
            info = app.runner.info
        gone = msgspec.structs.replace(info, id=RunnerId("dead"), process_started="1", nonce="n")
        await harness.store.register(gone)
        await harness.author("left").create(harness.store, Held(RunnerId("dead")))
        report = await harness.look()
        assert report.counts == {"H1": 1}
        assert (await harness.look(fix=True)).left == 0
        record = await harness.client.record("left")
        assert (record.holder, record.has_task) == (None, True)

    played(test, tmp_path, "sqlite")
