"""An answer that is lost: every place that appends or sends finds out what happened, and a repeat has one effect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.ids import RunId
from buoy.core.limits import UNCLEAR_TRIES_MAX
from buoy.core.log import events as e
from buoy.core.log.state import fold
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.engine.services.commits import commit_all_surely, commit_surely
from buoy.errors import InboxFull, NotWritten, StoreUnusable, Unavailable, Unclear, WrongState
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.operations.control.schedules import Times, add_schedule
from buoy.operations.workers.scheduler import Scheduler
from buoy.ports.host import Clock
from buoy.ports.records import Committed, FencedOut
from buoy.recovery.recover import recover_run
from buoy.testing.clock import ManualClock
from buoy.wiring.inspection import liveness_of

from .faults import FaultyStore, opened_with_faults
from .harness import bodies_of, log_of, opened, plant, result_of, store_at, until_status
from .scripted_steps import WITNESS, fails, work
from .test_pieces import created

# What a store does with a commit whose answer is lost.
FORMS = ("landed", "not landed")
_HOW = {"landed": "after", "not landed": "before"}
BROKEN: set[str] = set()


@buoy.step
async def charge() -> int:
    if BROKEN:
        raise ValueError("not yet")
    return 1


@buoy.workflow(name="order")
async def order() -> int:
    await work("first")
    await buoy.wait_signal("go")
    return await charge()


@buoy.workflow(name="order")
async def order_renamed() -> int:
    await fails("first")
    return 0


@buoy.workflow(name="asks")
async def asks() -> Any:
    return await buoy.ask("Ship?", kind="confirm")


@buoy.workflow(name="child")
async def child(n: int) -> int:
    return n


@buoy.workflow(name="parent")
async def parent() -> int:
    return await child(1) + await child(2)


@pytest.fixture(autouse=True)
def _forget() -> None:
    BROKEN.clear()
    WITNESS.clear()


@asynccontextmanager
async def client_at(url: str, at: Clock | None = None) -> AsyncIterator[tuple[Client, FaultyStore]]:
    """A client without a runner, on a store that loses answers."""
    async with store_at(url, at) as below:
        store = FaultyStore(below)
        clock, ids = at or SystemClock(), SystemIds()
        yield (
            Client(store, Registry(), clock=clock, ids=ids, liveness=liveness_of(below), actor="me"),  # type: ignore[arg-type]
            store,
        )


def lose(store: FaultyStore, form: str, *, for_ever: bool) -> None:
    """The next commit loses its answer; `for_ever`: and all that is asked about it until the caller gives up."""
    store.fail("commit", _HOW[form])
    if for_ever:
        store.fail("landed", "before", times=UNCLEAR_TRIES_MAX - 1)


async def waiting(url: str, run_id: str = "r") -> None:
    """A run that waits for a signal, and that no process drives."""
    async with opened(url, order) as app:
        await app.start_as(run_id, order)
        await until_status(app, run_id, "waiting_signal")


async def failed(url: str, run_id: str = "r") -> None:
    BROKEN.add("charge")
    async with opened(url, order) as app:
        run = await app.start_as(run_id, order)
        await run.signal("go")
        await until_status(app, run_id, "failed")


# ---- one function for all of them


@pytest.mark.parametrize("form", FORMS)
async def test_a_commit_whose_answer_is_lost_stands_once(form: str, every_url: str) -> None:
    async with client_at(every_url) as (app, store):
        lose(store, form, for_ever=False)
        write = created("r", "mine")
        assert await commit_surely(app.store, write)
        assert [event.nonce for event in await app.store.events(RunId("r"))] == ["mine"]
        assert not await commit_surely(app.store, created("r", "another"))


@pytest.mark.parametrize("form", FORMS)
async def test_a_group_is_read_back_by_one_question(form: str, every_url: str) -> None:
    async with client_at(every_url) as (app, store):
        await app.store.commit([created("r3", "theirs")])
        store.calls.clear()
        lose(store, form, for_ever=False)
        writes = [created(f"r{n}", f"mine{n}") for n in range(40)]
        outcomes = await commit_all_surely(app.store, writes)
        assert outcomes == [FencedOut(1) if n == 3 else Committed(1) for n in range(40)]
        # One question after the lost answer, and one about the write that the second answer called fenced.
        assert store.calls["landed"] <= 2
        assert store.calls["commit"] == 1 + (form == "not landed")


async def test_an_outcome_that_cannot_be_known_is_told_as_such(url: str) -> None:
    async with client_at(url) as (app, store):
        lose(store, "landed", for_ever=True)
        with pytest.raises(Unavailable):
            await commit_surely(app.store, created("r", "mine"))
        assert store.left == 0


async def test_a_store_that_takes_no_writes_is_told_as_such(url: str) -> None:
    async with client_at(url) as (app, store):
        store.fail("commit", "before", error=NotWritten("a standby"), times=UNCLEAR_TRIES_MAX)
        with pytest.raises(NotWritten, match="a standby"):
            await app.start_as("r", order)
        assert store.left == 0


async def test_a_refusal_says_nothing_about_an_unclear_try_before_it(url: str) -> None:
    async with client_at(url) as (app, store):
        store.fail("commit", "after")
        store.fail("landed", "before", error=NotWritten("a standby"), times=UNCLEAR_TRIES_MAX - 1)
        with pytest.raises(Unclear, match="a standby"):
            await app.start_as("r", order)
        assert store.left == 0


async def test_a_signal_to_a_store_that_takes_no_writes_is_not_unclear(url: str) -> None:
    await waiting(url)
    async with client_at(url) as (app, store):
        store.fail("send", "before", error=NotWritten("a standby"), times=UNCLEAR_TRIES_MAX)
        with pytest.raises(NotWritten, match="a standby"):
            await app.signal("r", "go")
        store.fail("send", "before")
        store.fail("send", "before", error=NotWritten("a standby"), times=UNCLEAR_TRIES_MAX - 1)
        with pytest.raises(Unclear, match="a standby"):
            await app.signal("r", "go")


async def test_an_error_that_a_person_must_mend_is_not_tried_again(url: str) -> None:
    async with client_at(url) as (app, store):
        store.fail("commit", "before", error=StoreUnusable("the disk is full"))
        with pytest.raises(StoreUnusable, match="full"):
            await commit_surely(app.store, created("r", "mine"))
        assert (store.calls["commit"], store.calls["landed"]) == (1, 1)


# ---- starts


@pytest.mark.parametrize("form", FORMS)
async def test_a_start_whose_answer_is_lost_makes_one_run(form: str, every_url: str) -> None:
    async with client_at(every_url) as (app, store):
        lose(store, form, for_ever=False)
        run = await app.start(order)
        assert [each.document.run_id for each in (await app.runs()).runs] == [run.id]


@pytest.mark.parametrize("form", FORMS)
async def test_a_start_that_is_repeated_under_its_key_makes_one_run(form: str, every_url: str) -> None:
    async with client_at(every_url) as (app, store):
        lose(store, form, for_ever=True)
        with pytest.raises(Unclear) as caught:
            await app.start(order)
        assert store.left == 0
        run = await app.start_as(caught.value.key, order)
        assert run.id == caught.value.key
        assert [each.document.run_id for each in (await app.runs()).runs] == [run.id]


@pytest.mark.parametrize("form", FORMS)
async def test_a_start_in_a_process_that_drives_it_makes_one_run(form: str, every_url: str) -> None:
    async with opened_with_faults(every_url, asks) as (app, store):
        store.fail("commit", _HOW[form])
        run = await app.start(asks)
        await run.question()
        assert [each.document.run_id for each in (await app.runs()).runs] == [run.id]


@pytest.mark.parametrize("form", FORMS)
async def test_a_parent_whose_commits_lose_their_answers_has_each_child_once(form: str, every_url: str) -> None:
    async with opened_with_faults(every_url, parent, child) as (app, store):
        store.fail("commit", _HOW[form], times=4)
        run = await app.start_as("p", parent)
        assert await result_of(app, run) == 3
        assert store.left == 0
        assert len((await app.runs()).runs) == 3


@pytest.mark.parametrize("form", FORMS)
async def test_a_schedule_starts_one_run_for_each_time(form: str, any_url: str) -> None:
    clock = ManualClock(1_800_000_000.0)
    async with client_at(any_url, clock) as (app, store):
        await add_schedule(app, "s", order, msgspec.Raw(b"{}"), Times(cron="0 * * * *"))
        scheduler = Scheduler(app.store, clock=clock, ids=app.ids)
        clock.advance(3600.0)
        lose(store, form, for_ever=False)
        assert (await scheduler.look()).started == 1
        clock.advance(3600.0)
        lose(store, form, for_ever=True)
        with pytest.raises(Unavailable):
            await scheduler.look()
        await scheduler.look()
        assert len((await app.runs()).runs) == 2


# ---- going back


async def branches(app: Client, run_id: str) -> tuple[int, dict[str, int]]:
    """How many branches the run has, and the epochs of its steps."""
    log = await log_of(app, run_id)
    return sum(isinstance(event.body, e.BranchCreated) for event in log), dict(fold(RunId(run_id), log).epochs)


async def jump(app: Client, dedupe: str | None = None) -> object:
    return await app.jump("r", "work", dedupe=dedupe)


async def retry(app: Client, dedupe: str | None = None) -> object:
    return await app.retry("r", dedupe=dedupe)


BACK = {"jump": (waiting, jump), "retry": (failed, retry)}
Prepared = Callable[[str], Awaitable[None]]
Ask = Callable[..., Awaitable[object]]


@pytest.mark.parametrize("way", BACK)
@pytest.mark.parametrize("form", FORMS)
async def test_going_back_whose_answer_is_lost_makes_one_branch(form: str, way: str, every_url: str) -> None:
    prepare, ask = BACK[way]
    await prepare(every_url)
    async with client_at(every_url) as (app, store):
        lose(store, form, for_ever=False)
        await ask(app)
        count, epochs = await branches(app, "r")
        assert (count, set(epochs.values())) == (1, {1})


@pytest.mark.parametrize("way", BACK)
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("form", FORMS)
async def test_going_back_that_is_repeated_makes_one_branch(form: str, keyed: bool, way: str, every_url: str) -> None:
    prepare, ask = BACK[way]
    await prepare(every_url)
    async with client_at(every_url) as (app, store):
        planned = await app.plan_retry("r", "work" if way == "jump" else None)
        lose(store, form, for_ever=True)
        with pytest.raises(Unclear) as caught:
            await ask(app)
        assert store.left == 0
        assert await ask(app, caught.value.key if keyed else None) == planned
        count, epochs = await branches(app, "r")
        assert (count, set(epochs.values())) == (1, {1})


async def test_a_jump_under_its_key_is_done_once_even_if_the_run_has_moved_on(every_url: str) -> None:
    await waiting(every_url)
    async with client_at(every_url) as (app, store):
        lose(store, "landed", for_ever=True)
        with pytest.raises(Unclear) as caught:
            await jump(app)
    async with opened(every_url, order) as app:
        await until_status(app, "r", "waiting_signal")
        assert len(await bodies_of(app, "r", e.StepStarted)) == 2
        await jump(app, caught.value.key)
        assert (await branches(app, "r"))[0] == 1
        # Without that key it is another request.
        await jump(app)
        assert (await branches(app, "r"))[0] == 2


# ---- migrations and requests


@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("form", FORMS)
async def test_a_migration_binds_the_run_once(form: str, for_ever: bool, every_url: str) -> None:
    await waiting(every_url)
    async with client_at(every_url) as (app, store):
        lose(store, form, for_ever=for_ever)
        key = None
        if for_ever:
            with pytest.raises(Unclear) as caught:
                await app.migrate("r", {"work": "fails"}, version="v2")
            key = caught.value.key
        done = await app.migrate("r", {"work": "fails"}, version="v2", dedupe=key)
        assert (done.done, done.version, done.renamed) == (True, "v2", {"work": "fails"})
        assert [each.version for each in await bodies_of(app, "r", e.VersionBound)] == ["v2"]


@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["pause", "cancel"])
async def test_a_request_has_one_effect(kind: str, form: str, for_ever: bool, every_url: str) -> None:
    await waiting(every_url)
    async with client_at(every_url) as (app, store):
        ask = getattr(app, kind)
        lose(store, form, for_ever=for_ever)
        if for_ever:
            with pytest.raises(Unavailable):
                await ask("r")
        try:
            assert (await ask("r")).done
        except WrongState:
            assert for_ever and form == "landed"  # the first one did it, and this one says so
        body = e.Paused if kind == "pause" else e.WorkflowCancelled
        assert len(await bodies_of(app, "r", body)) == 1


# ---- messages


@pytest.mark.parametrize("form", FORMS)
async def test_a_signal_whose_answer_is_lost_is_one_message(form: str, every_url: str) -> None:
    await waiting(every_url)
    async with client_at(every_url) as (app, store):
        store.fail("send", _HOW[form])
        assert not (await app.signal("r", "go", 1)).duplicate
        assert len(await app.store.inbox(RunId("r"))) == 1
        store.fail("send", _HOW[form], times=UNCLEAR_TRIES_MAX)
        with pytest.raises(Unclear) as caught:
            await app.signal("r", "go", 2)
        await app.signal("r", "go", 2, dedupe=caught.value.key)
        assert [msgspec.json.decode(each.body)["payload"] for each in await app.store.inbox(RunId("r"))] == [1, 2]


@pytest.mark.parametrize("form", FORMS)
async def test_an_answer_whose_receipt_is_lost_is_no_second_answer(form: str, every_url: str) -> None:
    async with opened(every_url, asks) as app:
        await (await app.start_as("r", asks)).question()
    async with client_at(every_url) as (app, store):
        store.fail("send", _HOW[form])
        await app.answer("r", True)
        assert len(await app.store.inbox(RunId("r"))) == 1
        store.fail("send", _HOW[form])
        with pytest.raises(WrongState, match="answered already"):
            await app.answer("r", False)


async def test_the_end_of_a_child_is_sent_again_until_its_parent_has_room_for_it(every_url: str) -> None:
    async with opened_with_faults(every_url, parent, child) as (app, store):
        store.fail("send", "before", times=2, error=InboxFull("p has 10,000 unread messages"))
        run = await app.start_as("p", parent)
        assert await result_of(app, run) == 3
        assert store.left == 0
        assert app.runner is not None
        assert "10,000 unread messages" in str(app.runner.troubles()[1])


# ---- recovery


@pytest.mark.parametrize("form", FORMS)
async def test_a_recovery_claims_the_run_once(form: str, every_url: str) -> None:
    log = [e.Event(1, 1.0, e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}"), policy="hold"), nonce="n1")]
    log.append(e.Event(2, 1.0, e.Claimed(runner="old", cause="created"), nonce="n2"))
    log.append(e.Event(3, 1.0, e.StepStarted(leaf="a#1", name="a", key="r/a#1/0"), nonce="n3"))  # type: ignore[arg-type]
    log.append(e.Event(4, 1.0, e.StepFailed(leaf="a#1", error=e.ErrorInfo(type="X", message="x"))))  # type: ignore[arg-type]
    async with client_at(every_url) as (app, store):
        await plant(app.store, "r", log, cause="created")
        lose(store, form, for_ever=False)
        await recover_run(app, RunId("r"))
        assert store.left == 0
        claims = [each for each in await bodies_of(app, "r", e.Claimed) if each.cause != "created"]
        assert (len(claims), len(await bodies_of(app, "r", e.Paused))) == (1, 1)


@buoy.workflow
async def late_one() -> Any:
    return await buoy.wait_signal("go")


async def test_a_start_on_a_closed_store_is_known_to_have_written_nothing(url: str) -> None:
    async with buoy.connect(url) as client:
        await client.start_as("early", late_one)
    with pytest.raises(buoy.NotWritten, match="is closed; open it again") as refused:
        await client.start_as("late", late_one)
    assert "not known" not in str(refused.value)
    with pytest.raises(buoy.NotWritten, match="is closed; open it again"):
        await client.signal("early", "go")
