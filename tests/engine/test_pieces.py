"""Small parts of the engine by themselves: alarms by a manual clock, the journal's groups, pools, scopes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.engine.authoring.context import CallScope
from buoy.engine.authoring.declaration import Retry
from buoy.engine.services.journal import Journal
from buoy.engine.services.thread_pool import ThreadPool
from buoy.engine.services.timers import Timers
from buoy.errors import Unavailable
from buoy.ports.records import Committed, FencedOut, Outcome, Write
from buoy.testing.clock import ManualClock
from tests.patience import PATIENCE_S

from .faults import FaultyStore
from .harness import store_at, until

NULL = e.NULL


async def rung(timers: Timers) -> None:
    """Lets the alarms look at their clock: the earliest possible alarm makes them look at once."""
    looked = asyncio.Event()
    timers.set(0.0, looked.set)
    await looked.wait()


# ---- alarms


async def test_alarms_ring_in_the_order_of_their_times_and_not_before() -> None:
    clock = ManualClock()
    timers = Timers(clock)
    heard: list[str] = []
    start = clock.now()
    for name, span_s in (("late", 60), ("soon", 10), ("later", 60), ("next", 20)):
        timers.set(start + span_s, lambda name=name: heard.append(name))
    await rung(timers)
    assert heard == []
    clock.advance(10)
    await rung(timers)
    assert heard == ["soon"]
    clock.advance(1000)
    await rung(timers)
    assert heard == ["soon", "next", "late", "later"]
    timers.close()


class SetClock(ManualClock):
    """A wall clock that a test sets; the monotonic one advances on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.set_by_s = 0.0

    def now(self) -> float:
        return super().now() + self.set_by_s


async def test_setting_the_clock_back_delays_no_alarm() -> None:
    clock = SetClock()
    timers = Timers(clock)
    heard: list[str] = []
    timers.set(clock.now() + 10, lambda: heard.append("before"))
    clock.set_by_s = -3600.0
    timers.set(clock.now() + 20, lambda: heard.append("after"))
    clock.advance(9)
    await rung(timers)
    assert heard == []
    clock.advance(1)
    await rung(timers)
    assert heard == ["before"]
    clock.advance(9)
    await rung(timers)
    assert heard == ["before"]
    clock.advance(1)
    await rung(timers)
    assert heard == ["before", "after"]
    timers.close()


async def test_setting_the_clock_forward_rings_what_is_due_by_it() -> None:
    clock = SetClock()
    timers = Timers(clock)
    heard: list[str] = []
    timers.set(clock.now() + 10, lambda: heard.append("due"))
    clock.set_by_s = 60.0
    await rung(timers)
    assert heard == ["due"]
    timers.close()


class HaltingClock(ManualClock):
    """The process stands still for a while right after one reading: the kernel gave its core to others."""

    def __init__(self, after_reading: int) -> None:
        super().__init__()
        self._readings_left = after_reading

    def now(self) -> float:
        return self._read(super().now())

    def monotonic(self) -> float:
        return self._read(super().monotonic())

    def _read(self, found: float) -> float:
        self._readings_left -= 1
        if self._readings_left == 0:
            self.advance(30)
        return found


@pytest.mark.parametrize("reading", range(1, 16))
async def test_a_process_that_stands_still_between_two_readings_rings_no_alarm_too_soon(reading: int) -> None:
    clock = HaltingClock(reading)
    timers = Timers(clock)
    heard: list[float] = []
    due = [clock.now() + span_s for span_s in (100, 200)]
    for at in due:
        timers.set(at, lambda: heard.append(clock.now()))
    while len(heard) < len(due):
        clock.advance(10)
        await rung(timers)
    assert all(at >= wanted for at, wanted in zip(heard, due, strict=True))
    timers.close()


async def test_a_cancelled_alarm_is_silent_and_one_in_the_past_rings_at_once() -> None:
    clock = ManualClock()
    timers = Timers(clock)
    heard: list[str] = []
    timers.set(clock.now() + 5, lambda: heard.append("cancelled")).cancel()
    timers.set(clock.now() - 5, lambda: heard.append("past"))
    clock.advance(10)
    await rung(timers)
    assert heard == ["past"]
    timers.close()


async def test_cancelled_alarms_are_at_most_half_of_the_heap_and_the_others_ring_in_order() -> None:
    clock = ManualClock()
    timers = Timers(clock)
    heard: list[int] = []
    start, kept, most = clock.now(), 0, 0
    for number in range(5_000):
        alarm = timers.set(start + 3_600 + number, lambda number=number: heard.append(number))
        if number % 50:
            alarm.cancel()
        else:
            kept += 1
        most = max(most, len(timers._heap) - 2 * kept)
    assert most <= 101, "an hour's time-out for each of many short steps keeps none of them"
    clock.advance(10_000)
    await rung(timers)
    assert heard == list(range(0, 5_000, 50))
    timers.close()


async def test_an_alarm_may_set_another_and_none_rings_after_the_close() -> None:
    clock = ManualClock()
    timers = Timers(clock)
    heard: list[str] = []
    timers.set(clock.now(), lambda: timers.set(clock.now() + 1, lambda: heard.append("second")))
    await rung(timers)
    clock.advance(1)
    await rung(timers)
    assert heard == ["second"]
    timers.set(clock.now() + 1, lambda: heard.append("never"))
    timers.close()
    clock.advance(5)
    timers.set(clock.now(), lambda: heard.append("never"))
    await asyncio.sleep(0)
    assert heard == ["second"]


# ---- the journal


def created(run: str, nonce: str) -> Write:
    event = e.Event(1, 1.0, e.WorkflowCreated(workflow="w", input=NULL), nonce=nonce)
    return Write(RunId(run), 0, (event,), document(fold(RunId(run), [event])))


async def test_what_is_queued_during_a_commit_goes_into_the_next_as_one_group(url: str) -> None:
    async with store_at(url) as below:
        store = FaultyStore(below)
        journal = Journal(store)  # type: ignore[arg-type]
        journal.start()
        outcomes: list[Outcome] = []
        for n in range(100):
            journal.submit(created(f"run{n}", f"nonce{n}"), outcomes.append)
        await journal.settled()
        assert outcomes == [Committed(1)] * 100
        assert store.calls["commit"] <= 2
        await journal.close()


async def test_one_fenced_write_does_not_harm_its_neighbours(url: str) -> None:
    async with store_at(url) as store:
        await store.commit([created("taken", "theirs")])
        journal = Journal(store)
        journal.start()
        outcomes: dict[str, Outcome] = {}
        for run in ("one", "taken", "two"):
            journal.submit(created(run, f"mine-{run}"), _into(outcomes, run))
        await journal.settled()
        assert outcomes["one"] == outcomes["two"] == Committed(1)
        assert isinstance(outcomes["taken"], FencedOut)
        await journal.close()


def _into(outcomes: dict[str, Outcome], run: str) -> Callable[[Outcome], None]:
    return lambda outcome: outcomes.__setitem__(run, outcome)


@pytest.mark.parametrize("how", ["before", "after"])
async def test_after_an_unclear_answer_the_journal_reads_back_before_it_concludes(how: str, url: str) -> None:
    async with store_at(url) as below:
        await below.commit([created("taken", "theirs")])
        store = FaultyStore(below)
        store.fail("commit", how)
        journal = Journal(store)  # type: ignore[arg-type]
        journal.start()
        outcomes: dict[str, Outcome] = {}
        for run in ("mine", "taken"):
            journal.submit(created(run, f"mine-{run}"), _into(outcomes, run))
        await journal.settled()
        assert outcomes["mine"] == Committed(1)
        assert isinstance(outcomes["taken"], FencedOut)
        assert journal.errors == 1
        assert journal.last_error == "no answer (a test)"
        await journal.close()


async def test_a_true_winner_that_is_called_a_loser_is_found_by_its_nonce(url: str) -> None:
    async with store_at(url) as store:
        write = created("run", "mine")
        # As if the first sending had succeeded and its answer was lost on the way.
        await store.commit([write])
        journal = Journal(store)
        journal.start()
        outcomes: list[Outcome] = []
        journal.submit(write, outcomes.append)
        await journal.settled()
        assert outcomes == [Committed(1)]
        await journal.close()


async def test_a_journal_that_is_closed_first_writes_what_it_took(url: str) -> None:
    async with store_at(url) as below:
        store = FaultyStore(below)
        store.fail("commit", "before", times=2)
        journal = Journal(store)  # type: ignore[arg-type]
        journal.start()
        outcomes: list[Outcome] = []
        journal.submit(created("run", "mine"), outcomes.append)
        await journal.close()
        assert outcomes == [Committed(1)]
        assert await below.run(RunId("run")) is not None


async def test_an_outage_of_the_store_is_counted_and_said(url: str) -> None:
    async with store_at(url) as below:
        store = FaultyStore(below)
        store.fail("commit", "before", times=3, error=Unavailable("the disk is away"))
        journal = Journal(store)  # type: ignore[arg-type]
        journal.start()
        journal.submit(created("run", "mine"), lambda outcome: None)
        await until(lambda: journal.errors >= 1)
        assert journal.last_error == "the disk is away"
        await journal.settled()
        assert journal.errors == 3
        await journal.close()


# ---- pools, scopes, retries


async def test_a_pool_never_runs_more_at_once_than_its_size() -> None:
    class Threads:
        made = 0

        def run(self, work: Callable[[], None], name: str) -> None:
            self.made += 1
            threading.Thread(target=work, name=name, daemon=True).start()

    threads = Threads()
    pool = ThreadPool(threads, 3, "test")
    lock, most, now = threading.Lock(), 0, 0
    gate = threading.Semaphore(0)
    done: list[int] = []

    def work(n: int) -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        gate.acquire(timeout=PATIENCE_S)
        with lock:
            now -= 1
            done.append(n)

    for n in range(12):
        pool.submit(lambda n=n: work(n))
    await until(lambda: now == 3)
    gate.release(12)
    await until(lambda: len(done) == 12)
    assert (most, threads.made) == (3, 3)
    pool.close()


def test_identities_depend_on_the_order_of_creation_only() -> None:
    root = CallScope()
    one, two = root.next_part(), root.next_part()
    assert [two.next_leaf("a"), one.next_leaf("a"), one.next_leaf("a"), root.next_leaf("a"), one.next_leaf("b")] == [
        "2/a#1",
        "1/a#1",
        "1/a#2",
        "a#1",
        "1/b#1",
    ]
    assert one.next_part().next_part().next_leaf("deep") == "1.1.1/deep#1"


def test_the_back_off_grows_to_its_limit() -> None:
    retry = Retry(retries=100, backoff_s=0.5, factor=2.0, backoff_max_s=10.0)
    assert [retry.delay_s(n) for n in (1, 2, 3, 4, 5, 6, 1000)] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    patient = Retry(retries=5, backoff_s=3600.0)
    assert [patient.delay_s(n) for n in (1, 2)] == [3600.0, 3600.0], "as long as was asked for"
