"""The runner: taking over, giving back, evicting, being fenced, and living with a store that fails."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.cli.terminal.lines.reports import ReportLines
from buoy.cli.terminal.sessions.worker import Reporter
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.codec import encode
from buoy.core.log.document import document
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.run.mailbox import Reason, Signal
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.operations.workers.worker import hear_troubles
from buoy.ports.records import Message, Write
from buoy.wiring.inspection import liveness_of
from tests.patience import PATIENCE_S

from .faults import FaultyStore, opened_with_faults
from .harness import (
    PATIENT_STOP,
    bodies_of,
    log_of,
    once_stopping,
    opened,
    outcome_of,
    plant,
    renamed,
    result_of,
    state_of,
    store_at,
    types_of,
    until,
    until_status,
)
from .scripted_steps import WITNESS, after, never, threaded, work


@pytest.fixture(autouse=True)
def fresh_witness() -> None:
    WITNESS.clear()


@buoy.workflow
async def waits(n: int) -> Any:
    first = await work("first", n)
    found = await buoy.wait_signal("go")
    return [first, found, await work("last", n)]


@buoy.workflow
async def works(n: int) -> int:
    one = await work("one", n)
    two, three = await asyncio.gather(work("two", n), threaded.call("three", n))
    return one + two + three


# ---- starting


async def test_starting_an_id_again_gives_the_same_run_back(every_url: str) -> None:
    async with opened(every_url, waits, works) as app:
        first = await app.start_as("mine", waits, 1)
        again = await app.start_as("mine", waits, 1)
        assert first.id == again.id == "mine"
        with pytest.raises(buoy.WrongState, match="another input"):
            await app.start_as("mine", waits, 2)
        with pytest.raises(buoy.WrongState, match="is a run of waits"):
            await app.start_as("mine", works, 1)
        await until_status(app, "mine", "waiting_signal")
    async with opened(every_url, waits) as app:
        run = await app.start_as("mine", waits, 1)
        await run.signal("go", 3)
        assert await result_of(app, run) == [1, 3, 1]
        assert await result_of(app, await app.start_as("mine", waits, 1)) == [1, 3, 1]
    assert WITNESS.of("mine") == {"work#1": 1, "work#2": 1}


async def test_of_many_who_start_one_id_at_once_all_get_the_one_run(url: str) -> None:
    async with opened(url, works) as one, opened(url, works) as two, buoy.connect(url) as three:
        made = await asyncio.gather(*(app.start_as("mine", works, 5) for app in (one, two, three) for _ in range(5)))
        assert {run.id for run in made} == {"mine"}
        assert [await result_of(one, run) for run in made] == [15] * 15
        assert (await types_of(one, "mine")).count("workflow_created") == 1
    assert set(WITNESS.of("mine").values()) == {1}


@pytest.mark.parametrize("run_id", ["", ".hidden", "a/b", "a b", "x" * 129, "../up", "ünicode"])
async def test_an_id_that_could_be_a_path_is_refused(run_id: str, url: str) -> None:
    async with opened(url, works) as app:
        with pytest.raises(buoy.BadInput, match="run id"):
            await app.start_as(run_id, works, 1)
        assert (await app.runs()).runs == ()


async def test_an_input_that_does_not_fit_starts_nothing(url: str) -> None:
    async with opened(url, works) as app:
        for args, kind in (
            (("text",), buoy.BadInput),
            ((), buoy.BadInput),
            ((1, 2), buoy.BadInput),
            ((object(),), buoy.NotJson),
            (("x" * 1_100_000,), buoy.TooLarge),
        ):
            with pytest.raises(kind):
                await app.start(works, *args)
        assert (await app.runs()).runs == ()
        assert app.runner.holding() == 0


async def test_a_run_started_by_a_client_waits_for_a_worker(every_url: str) -> None:
    async with buoy.connect(every_url) as client:
        await client.start_as("mine", works, 2)
        assert (await client.state("mine")).status == "pending"
    async with opened(every_url, works) as app:
        assert await result_of(app, await app.get("mine")) == 6
        (claimed,) = await bodies_of(app, "mine", e.Claimed)
        assert (claimed.runner, claimed.cause) == (app.runner.id, "created")


async def test_two_different_workflows_of_one_name_are_refused(url: str) -> None:
    @buoy.workflow(name="works")
    async def other(n: int) -> int:
        return n

    with pytest.raises(buoy.BadInput, match="two different workflows are named 'works'"):
        async with opened(url, works, other):
            pass


# ---- two workers


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_two_workers_share_the_runs_and_no_body_runs_twice(kind: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/folder"
    count = 40 if kind == "sqlite" else 12
    async with opened(url, works) as one, opened(url, works) as two, buoy.connect(url) as client:
        runs = [await client.start_as(f"run{n}", works, n) for n in range(count)]
        assert [await result_of(one, run) for run in runs] == [3 * n for n in range(count)]
        for run in runs:
            claims = await bodies_of(two, run.id, e.Claimed)
            assert len(claims) == 1
    assert all(set(WITNESS.of(f"run{n}").values()) == {1} for n in range(count))


async def test_what_one_worker_gives_back_the_other_finishes(every_url: str) -> None:
    async with opened(every_url, waits) as two:
        async with opened(every_url, waits) as one:
            runs = [await one.start_as(f"run{n}", waits, n) for n in range(8)]
            for run in runs:
                await until_status(one, run.id, "waiting_signal")
        for n in range(8):
            await two.signal(f"run{n}", "go", n)
        for n in range(8):
            assert await result_of(two, await two.get(f"run{n}")) == [n, n, n]
            assert set(WITNESS.of(f"run{n}").values()) == {1}
            claims = await bodies_of(two, f"run{n}", e.Claimed)
            assert [claim.runner for claim in claims][-1] == two.runner.id


async def test_a_message_sent_by_another_process_reaches_the_owner(url: str) -> None:
    async with opened(url, waits) as app, buoy.connect(url) as client:
        run = await app.start_as("run", waits, 1)
        await until_status(app, "run", "waiting_signal")
        await client.signal("run", "go", "from outside")
        assert await result_of(app, run) == [1, "from outside", 1]


# ---- eviction


async def test_waiting_runs_leave_memory_and_all_finish_when_signalled(every_url: str) -> None:
    options = buoy.RunnerOptions(waiting_runs_max=2, stop_grace_s=2)
    async with opened(every_url, waits, options=options) as app:
        runs = [await app.start_as(f"run{n}", waits, n) for n in range(20)]
        for run in runs:
            await until_status(app, run.id, "waiting_signal")
        await until(lambda: app.runner.holding() <= 2, "the runs to leave memory")
        for n, run in enumerate(runs):
            await run.signal("go", n)
        assert [await result_of(app, run) for run in runs] == [[n, n, n] for n in range(20)]
        assert app.runner.holding() == 0
    for n in range(20):
        assert WITNESS.of(f"run{n}") == {"work#1": 1, "work#2": 1}


async def test_evicted_runs_wake_by_their_own_time(url: str) -> None:
    @buoy.workflow
    async def naps(n: int) -> int:
        await buoy.sleep("150ms")
        return await work("after", n)

    options = buoy.RunnerOptions(waiting_runs_max=0, stop_grace_s=2)
    async with opened(url, naps, options=options) as app:
        runs = [await app.start_as(f"run{n}", naps, n) for n in range(10)]
        assert [await result_of(app, run) for run in runs] == list(range(10))
        # Whether one is evicted at all is the runner's affair; it must not be claimed again and again.
        assert len(await bodies_of(app, "run0", e.Claimed)) <= 2


async def test_signals_sent_during_eviction_are_not_lost(url: str) -> None:
    """Each run waits for many signals, and is evicted again and again while they come."""

    @buoy.workflow
    async def many() -> list[Any]:
        return [await buoy.wait_signal("go") for _ in range(15)]

    options = buoy.RunnerOptions(waiting_runs_max=0, stop_grace_s=2)
    async with opened(url, many, options=options) as app, buoy.connect(url) as client:
        runs = [await app.start_as(f"run{n}", many) for n in range(4)]

        async def send(run_id: str) -> None:
            for n in range(15):
                await client.signal(run_id, "go", n)
                await asyncio.sleep(0.003 * (n % 4))

        await asyncio.gather(*(send(run.id) for run in runs))
        assert [await result_of(app, run) for run in runs] == [list(range(15))] * 4


async def test_more_runs_than_may_be_driven_at_once_all_finish(url: str) -> None:
    options = buoy.RunnerOptions(driving_runs_max=3, stop_grace_s=2)
    async with opened(url, works, options=options) as app:
        runs = [await app.start_as(f"run{n}", works, n) for n in range(25)]
        assert [await result_of(app, run) for run in runs] == [3 * n for n in range(25)]
        assert app.runner.holding() == 0


# ---- graceful stop


async def test_a_stop_lets_a_step_end_and_the_next_worker_goes_on_after_it(every_url: str) -> None:
    @buoy.workflow
    async def two() -> int:
        return await after("one", "let", 1) + await work("two", 2)

    async with opened(every_url, two, options=PATIENT_STOP) as app:
        await app.start_as("run", two)
        await until(lambda: bool(WITNESS.ran))
        passing = asyncio.ensure_future(once_stopping(app, "run", lambda: WITNESS.let_pass("run", {"let"})))
    await passing
    async with opened(every_url, two) as app:
        assert await result_of(app, await app.get("run")) == 3
        log = await log_of(app, "run")
        claims = [body for body in (event.body for event in log) if isinstance(body, e.Claimed)]
    kinds = [event.type for event in log]
    assert kinds[:5] == ["workflow_created", "claimed", "step_started", "step_completed", "interrupted"]
    assert [claim.cause for claim in claims] == ["created", "interrupted"]
    assert WITNESS.of("run") == {"after#1": 1, "work#1": 1}


async def test_an_async_step_that_outlasts_the_grace_time_is_repeated_by_the_next_worker(url: str) -> None:
    @buoy.workflow
    async def calls() -> int:
        try:
            return await after("one", "let", 1)
        finally:
            await work("clean")

    options = buoy.RunnerOptions(stop_grace_s=0.05)
    async with opened(url, calls, options=options) as app:
        await app.start_as("run", calls)
        await until(lambda: bool(WITNESS.ran))
    assert WITNESS.of("run") == {"after#1": 1}
    WITNESS.let_pass("run", {"let"})
    async with opened(url, calls) as app:
        assert await result_of(app, await app.get("run")) == 1
        starts = await bodies_of(app, "run", e.StepStarted)
        kinds = await types_of(app, "run")
    assert [(start.leaf, start.attempt) for start in starts] == [("after#1", 1), ("work#1", 1)]
    assert "step_failed" not in kinds
    assert "retry_scheduled" not in kinds
    assert WITNESS.attempts("run", "after#1") == [1, 1]


async def test_waiting_and_paused_runs_are_given_back_without_an_event(url: str) -> None:
    async with opened(url, waits) as app:
        await app.start_as("waiting", waits, 1)
        await app.start_as("paused", waits, 1)
        await until_status(app, "waiting", "waiting_signal")
        await until_status(app, "paused", "waiting_signal")
        await app.pause("paused")
        await until_status(app, "paused", "paused")
    async with buoy.connect(url) as client:
        assert "interrupted" not in await types_of(client, "waiting")
        assert "interrupted" not in await types_of(client, "paused")
        for run_id in ("waiting", "paused"):
            assert (await client.record(run_id)).holder is None
        assert (await client.store.runners()) == []


async def test_a_stop_during_a_long_replay_is_quick_and_loses_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @buoy.workflow
    async def long() -> int:
        total = 0
        for n in range(400):
            total += await work("n", n)
        return total + await buoy.wait_signal("go")

    async with opened(url, long) as app:
        await app.start_as("original", long)
        await until_status(app, "original", "waiting_signal")
        log = await log_of(app, "original")
    # Gives way to the loop at every chance, so that the stop falls into the replay.
    monkeypatch.setattr("buoy.engine.code.replay.REPLAY_SLICE_S", -1.0)
    copies = [f"copy{n}x" for n in range(5)]
    second = f"sqlite:///{tmp_path}/second.db"
    async with store_at(second) as store:
        for copy in copies:
            await plant(store, copy, renamed(log, "original", copy))
    options = buoy.RunnerOptions(stop_grace_s=PATIENCE_S)
    async with opened(second, long, options=options) as app:
        await until(lambda: app.runner.holding() > 0)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < PATIENCE_S / 2, "it waited for the grace time"
    async with opened(second, long) as app:
        for copy in copies:
            await app.signal(copy, "go", 1)
        for copy in copies:
            assert await result_of(app, await app.get(copy)) == sum(range(400)) + 1
            assert WITNESS.of(copy) == {}


async def test_an_app_can_be_opened_and_closed_many_times(url: str) -> None:
    async with opened(url, waits) as app:
        await app.start_as("run", waits, 1)
        await until_status(app, "run", "waiting_signal")
    for _ in range(10):
        async with opened(url, waits) as app:
            await app.record("run")
    async with opened(url, waits) as app:
        await app.signal("run", "go", 1)
        assert await result_of(app, await app.get("run")) == [1, 1, 1]
        assert len(await app.store.runners()) == 1


# ---- fencing


async def test_a_runner_that_lost_a_run_records_nothing_more(url: str) -> None:
    @buoy.workflow
    async def calls() -> int:
        return await after("one", "let", 1)

    async with opened(url, calls) as app:
        await app.start_as("run", calls)
        await until(lambda: bool(WITNESS.ran))
        # Another runner claims it behind its back, as after a false proof of death.
        log = await log_of(app, "run")
        state = await state_of(app, "run")
        claimed = e.Event(len(log) + 1, log[-1].at, e.Claimed(runner="other", cause="taken_over"), nonce="other-1")
        state.apply(claimed)
        await app.store.commit([Write(RunId("run"), len(log), (claimed,), document(state))])
        WITNESS.let_pass("run", {"let"})
        await until(lambda: app.runner.holding() == 0, "the zombie to let go")
        assert await types_of(app, "run") == ["workflow_created", "claimed", "step_started", "claimed"]


async def test_a_runner_declared_gone_drops_all_and_takes_nothing(url: str) -> None:
    async with opened(url, waits) as app:
        await app.start_as("run", waits, 1)
        await until_status(app, "run", "waiting_signal")
        await app.store.declare_dead(app.runner.id, "a test says so", cause="taken_over", evidence={})
        app.runner.declared_gone("a test says so")
        await until(lambda: app.runner.holding() == 0)
        await app.signal("run", "go", 2)
        async with opened(url, waits) as other:
            assert await result_of(other, await other.get("run")) == [1, 2, 1]
        assert app.runner.troubles()[0] >= 1


# ---- a store that fails


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_commit_without_an_answer_is_neither_lost_nor_done_twice(how: str, url: str) -> None:
    async with opened_with_faults(url, works) as (app, store):
        store.fail("commit", how, times=3)
        run = await app.start_as("run", works, 2)
        assert await result_of(app, run) == 6
        store.fail("commit", how, times=2)
        store.fail("landed", "before", times=1)
        other = await app.start_as("other", works, 3)
        assert await result_of(app, other) == 9
        assert store.left == 0
        for run_id in ("run", "other"):
            seqs = [event.seq for event in await log_of(app, run_id)]
            assert seqs == list(range(1, len(seqs) + 1))
            assert set(WITNESS.of(run_id).values()) == {1}
        assert app.runner.troubles()[0] >= 5


@pytest.mark.parametrize(
    "method", ["claim_tasks", "events", "inbox", "unread_runs", "wait_for_change", "release", "mark_read", "run"]
)
async def test_a_read_or_a_claim_that_fails_loses_no_run(method: str, url: str) -> None:
    options = buoy.RunnerOptions(waiting_runs_max=0, stop_grace_s=2)
    async with opened_with_faults(url, waits, options=options) as (_, store), buoy.connect(url) as client:
        await client.start_as("run", waits, 1)
        await until_status(client, "run", "waiting_signal")
        store.fail(method, "before", times=2)
        await client.signal("run", "go", 2)
        assert await result_of(client, await client.get("run")) == [1, 2, 1]
    assert set(WITNESS.of("run").values()) == {1}


@pytest.mark.parametrize("method", ["claim_tasks", "wait_for_change", "commit", "release", "unread_runs"])
async def test_an_error_that_nobody_foresaw_does_not_stop_the_runner_in_silence(method: str, url: str) -> None:
    # A runner looks for messages only while it executes a run.
    options = buoy.RunnerOptions(waiting_runs_max=1 if method == "unread_runs" else 0, stop_grace_s=2)
    async with opened_with_faults(url, waits, options=options) as (app, store), buoy.connect(url) as client:
        await client.start_as("first", waits, 1)
        await until_status(client, "first", "waiting_signal")
        store.fail(method, "before", error=RuntimeError("a fault of the store itself"))
        await client.signal("first", "go", 2)
        await client.start_as("second", waits, 1)
        await until_status(client, "second", "waiting_signal")
        await until(lambda: store.left == 0, "the fault to happen")
        await client.signal("second", "go", 2)
        for run_id in ("first", "second"):
            assert await result_of(client, await client.get(run_id)) == [1, 2, 1]
        errors, text = app.runner.troubles()
        assert errors >= 1
        assert text


async def test_a_release_that_comes_late_does_not_park_a_run_that_was_taken_anew(url: str) -> None:
    """The worker gives a paused run back. Before that reaches the store a person resumes it, and it is taken again."""
    async with opened(url, waits) as app:
        await app.start_as("run", waits, 1)
        await until_status(app, "run", "waiting_signal")
        await app.pause("run")
        await until_status(app, "run", "paused")
    async with store_at(url) as below:
        store = FaultyStore(below)
        ids, clock = SystemIds(), SystemClock()
        client = Client(store, Registry(), clock=clock, ids=ids, liveness=liveness_of(below), actor="person")
        # The person's own process has seen that no runner holds the run, and is about to write.
        write = store.hold("commit")
        resuming = asyncio.ensure_future(client.resume("run"))
        await until(lambda: store.calls["commit"] == 1)
        async with opened_with_faults(url, waits) as (app, worker):
            release = worker.hold("release")
            await below.send(_note_for("run"))
            await until(lambda: worker.calls["release"] == 1 or _claims(app, "run", 2), "the worker to look at the run")
            write.set()
            await resuming
            # Either order: taken again before the old release is through, or only after it.
            asyncio.get_running_loop().call_later(0.2, release.set)
            await until(lambda: app.runner.holding() == 1, "the worker to take the resumed run")
            await until_status(app, "run", "waiting_signal")
            await until(release.is_set)
            await app.signal("run", "nothing")
            record = await app.record("run")
            assert record.holder == app.runner.id, "a live run's task was parked by an old release"
            await app.signal("run", "go", 2)
            assert await result_of(app, await app.get("run")) == [1, 2, 1]


@pytest.mark.parametrize("request_kind", ["resume", "cancel"])
async def test_a_resume_that_meets_a_paused_run_on_its_way_out_is_not_lost(request_kind: str, url: str) -> None:
    """A worker looks at a paused run, finds it paused still, and is about to give it back when the request comes."""
    async with opened(url, waits) as app:
        await app.start_as("run", waits, 1)
        await until_status(app, "run", "waiting_signal")
        await app.pause("run")
        await until_status(app, "run", "paused")
    async with opened_with_faults(url, waits) as (_, store), buoy.connect(url) as client:
        commit = store.hold("commit")
        # A second pause is refused, which is an event: the worker writes, and has not yet let go.
        await client.store.send(Message(RunId("run"), "pause", "again", encode(Reason(None), "x")))
        await until(lambda: store.calls["commit"] == 1, "the worker to claim the run")
        looks = store.calls["inbox"]
        await client.store.send(Message(RunId("run"), request_kind, "now", encode(Reason(None), "x")))
        await until(
            lambda: store.calls["inbox"] > looks or store.calls["unread_runs"] > looks + 3, "the worker to look"
        )
        commit.set()
        if request_kind == "resume":
            await client.signal("run", "go", 2)
        status, _ = await outcome_of(client, await client.get("run"))
        assert status == ("completed" if request_kind == "resume" else "cancelled")


def _note_for(run_id: str) -> Message:
    return Message(RunId(run_id), "signal", "note", encode(Signal("other"), "x"))


async def _claims(app: Client, run_id: str, count: int) -> bool:
    return len(await bodies_of(app, run_id, e.Claimed)) >= count


# ---- limits


async def test_a_log_that_is_full_ends_the_run_with_advice(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.engine.run.leaves.LOG_EVENTS_MAX", 30)

    @buoy.workflow
    async def endless() -> int:
        while True:
            await work("again")

    async with opened(url, endless) as app:
        run = await app.start_as("run", endless)
        assert await outcome_of(app, run) == ("failed", "TooLarge")
        assert "has reached 30 events" in (await run.document()).error.message
        assert len(await log_of(app, "run")) <= 33


async def test_a_thousand_steps_at_once_are_one_commit_each_way(url: str) -> None:
    @buoy.workflow
    async def wide() -> int:
        return sum(await asyncio.gather(*(work("n", n) for n in range(500))))

    async with opened(url, wide) as app:
        assert await result_of(app, await app.start_as("run", wide)) == sum(range(500))
        starts = [event for event in await log_of(app, "run") if isinstance(event.body, e.StepStarted)]
        assert sum(event.nonce is not None for event in starts) == 0


async def test_never_ending_steps_of_many_runs_do_not_keep_the_process_from_closing(url: str) -> None:
    @buoy.workflow
    async def hangs() -> int:
        return await never("x")

    options = buoy.RunnerOptions(stop_grace_s=0.05)
    async with opened(url, hangs, options=options) as app:
        for n in range(20):
            await app.start_as(f"run{n}", hangs)
        await until(lambda: len(WITNESS.ran) == 20)
    async with buoy.connect(url) as client:
        for n in range(20):
            assert (await client.record(f"run{n}")).document.status == "interrupted"


async def test_a_store_that_goes_away_twice_is_told_twice_and_its_return_too(url: str) -> None:
    told = StringIO()
    report = Reporter(ReportLines(told, lambda: 0.0, as_json=False))

    def lines() -> list[str]:
        return [line.split("  ", 1)[1] for line in told.getvalue().splitlines()]

    async with opened_with_faults(url, works) as (app, store):
        assert app.runner is not None
        hear_troubles(app.runner, report.trouble, report.trouble_over)
        for outage in (1, 2):
            store.fail("wait_for_change", "before", times=2)
            await until(lambda: len(lines()) == 2 * outage, "the end of the outage to be told")
        assert lines() == ["trouble: no answer (a test)", f"{store.name} answers again"] * 2
