"""Runs that began under other names or another version: bound, migrated, or held with the reason."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.bundle.format import parse, render
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.operations.maintenance.bundles import export_run, import_run
from buoy.recovery.sweep.resume_paused import go_on_with_this_code, migrate_all
from buoy.wiring.app import open_client

from .harness import bodies_of, log_of, opened, plant, result_of, state_of, store_at, types_of, until, until_status

KEYS: list[tuple[str, str]] = []
MENDED: set[str] = set()


@pytest.fixture(autouse=True)
def _forget() -> None:
    KEYS.clear()
    MENDED.clear()


def noting(name: str) -> Any:
    async def body(value: int = 0) -> int:
        KEYS.append((name, buoy.idempotency_key()))
        return value

    body.__name__ = body.__qualname__ = name
    return buoy.step(body)


charge, pay, ship = noting("charge"), noting("pay"), noting("ship")


@buoy.step(retries=5, backoff="1h")
async def shaky() -> int:
    KEYS.append(("shaky", buoy.idempotency_key()))
    if "shaky" not in MENDED:
        raise ConnectionError("not yet")
    return 1


@buoy.step(retries=5, backoff="1h")
async def steady() -> int:
    KEYS.append(("steady", buoy.idempotency_key()))
    return 1


@buoy.workflow(name="helper")
async def helper() -> int:
    await buoy.wait_signal("end")
    return 3


@buoy.workflow(name="assistant")
async def assistant() -> int:
    return 0


Code = Callable[..., Coroutine[Any, Any, Any]]


def named(code: Code) -> buoy.Workflow[..., Any]:
    return buoy.workflow(name="order")(code)


async def before() -> Any:
    first = await charge(1)
    await buoy.wait_signal("go")
    return [first, await charge(2)]


async def after() -> Any:
    first = await pay(1)
    await buoy.wait_signal("go")
    return [first, await pay(2)]


async def begun(url: str, code: Code, status: str = "waiting_signal", *more: buoy.Workflow[..., Any]) -> None:
    workflow = named(code)
    async with opened(url, workflow, *more) as app:
        await app.start_as("run", workflow)
        await until_status(app, "run", status)


async def paused_by(url: str, code: Code) -> str:
    async with opened(url, named(code)) as app:
        await app.signal("run", "go")
        state = await until_status(app, "run", "paused")
        assert state.pause is not None
        assert state.pause.reason == "version"
        return str(state.pause.detail)


# ---- renames


async def test_a_renamed_step_goes_on_after_a_migration(any_url: str) -> None:
    await begun(any_url, before)
    await paused_by(any_url, after)
    async with open_client(any_url) as client:
        plan = await client.migrate("run", {"charge": "pay"}, dry_run=True)
        assert (plan.leaves, plan.goes_on, plan.done) == ({"charge#1": "pay#1"}, True, False)
        assert "version_bound" not in await types_of(client, "run")
        done = await client.migrate("run", {"charge": "pay"})
        assert (done.done, done.version, done.previous) == (True, named(after).version, named(before).version)
    async with opened(any_url, named(after)) as app:
        assert await result_of(app, await app.get("run")) == [1, 2]
        assert (await state_of(app, "run")).anomalies == []
        record = await app.record("run")
        assert record.document.version == named(after).version
    # The step that was done is not done again, and the next one is a new effect under its own name.
    assert KEYS == [("charge", "run/charge#1/0"), ("pay", "run/pay#2/0")]


async def test_a_payment_under_way_keeps_its_key(url: str) -> None:
    async def old() -> Any:
        return await shaky()

    async def new() -> Any:
        return await steady()

    await begun(url, old, "waiting")
    async with open_client(url) as client:
        await client.migrate("run", {"shaky": "steady"})
        # The retry is due in an hour; it is made due now, as time would.
        log = await log_of(client, "run")
    soon = [_due_now(event) for event in log]
    async with store_at(f"{url}2") as store:
        await plant(store, "run", soon)
    async with opened(f"{url}2", named(new)) as app:
        assert await result_of(app, await app.get("run")) == 1
    assert [key for _, key in KEYS] == ["run/shaky#1/0", "run/shaky#1/0"]


def _due_now(event: e.Event) -> e.Event:
    if not isinstance(event.body, e.RetryScheduled):
        return event
    return msgspec.structs.replace(event, body=msgspec.structs.replace(event.body, due_at=1.0))


async def test_a_child_of_a_renamed_leaf_still_reports_to_it(url: str) -> None:
    async def old() -> Any:
        return await helper()

    async def new() -> Any:
        return await assistant()

    await begun(url, old, "waiting", helper)
    async with open_client(url) as client:
        await client.migrate("run", {"helper": "assistant"})
        (started,) = await bodies_of(client, "run", e.ChildStarted)
    async with opened(url, named(new), helper, assistant) as app:
        await app.signal(started.child, "end")
        assert await result_of(app, await app.get("run")) == 3
        assert (await state_of(app, "run")).anomalies == []


async def test_a_question_keeps_its_id_and_an_answer_given_before_counts(url: str) -> None:
    """Questions of code have no name, but those of a renamed step of a spec do; see the tests of specs."""

    async def old() -> Any:
        await charge(1)
        return await buoy.ask("Well?", kind="confirm")

    async def new() -> Any:
        await pay(1)
        return await buoy.ask("Well?", kind="confirm")

    await begun(url, old, "awaiting_input")
    async with open_client(url) as client:
        await client.answer("run", True)
        await client.migrate("run", {"charge": "pay"})
    async with opened(url, named(new)) as app:
        assert await result_of(app, await app.get("run")) is True


async def test_what_a_live_runner_drives_must_be_paused_first(url: str) -> None:
    workflow = named(before)
    async with opened(url, workflow) as app:
        run = await app.start_as("run", workflow)
        await until_status(app, "run", "waiting_signal")
        with pytest.raises(buoy.WrongState, match=r"is driven by .* pause it first"):
            await app.migrate("run", {"charge": "pay"})
        await run.pause()
        await until(lambda: _nobody_holds(app, "run"), "the runner to let go")
        done = await app.migrate("run", {"charge": "pay"})
        # A person paused it, so only a person resumes it.
        assert (done.done, done.goes_on) == (True, False)
        assert (await state_of(app, "run")).status == "paused"


async def _nobody_holds(app: Client, run_id: str) -> bool:
    record = await app.record(run_id)
    return record.holder is None and record.document.pause is not None


async def test_what_makes_no_sense_is_refused_and_nothing_is_written(url: str) -> None:
    await begun(url, before)
    async with open_client(url) as client:
        length = len(await log_of(client, "run"))
        for renamed, why in (
            ({"pack": "wrap"}, "has no step 'pack'"),
            ({"charge": "a b"}, "is not allowed"),
            ({"signal:go": "charge"}, "would both be charge#1"),
        ):
            with pytest.raises(buoy.BadInput, match=why):
                await client.migrate("run", renamed)
        with pytest.raises(buoy.UnknownRun):
            await client.migrate("none", {"charge": "pay"})
        assert len(await log_of(client, "run")) == length


async def test_a_run_that_ended_has_nothing_to_migrate(url: str) -> None:
    async def short() -> Any:
        return await charge(1)

    async with opened(url, named(short)) as app:
        await result_of(app, await app.start_as("run", named(short)))
        with pytest.raises(buoy.WrongState, match="is completed: retry it first"):
            await app.migrate("run", {"charge": "pay"})


async def test_a_migration_to_names_that_do_not_fit_either_is_paused_again(url: str) -> None:
    async def other() -> Any:
        await ship(1)
        return await buoy.wait_signal("go")

    await begun(url, before)
    await paused_by(url, other)
    async with open_client(url) as client:
        await client.migrate("run", {"charge": "pay"})
    async with opened(url, named(other)) as app:
        await until(lambda: _paused_at(app, 2), "the second pause")
        pause = (await state_of(app, "run")).pause
        assert pause is not None
        assert "pay#1" in str(pause.detail)


async def _paused_at(app: Client, count: int) -> bool:
    return (await types_of(app, "run")).count("paused") >= count


async def test_all_paused_runs_of_a_workflow_are_migrated_at_once(url: str) -> None:
    async def later() -> Any:
        await ship(0)
        await buoy.wait_signal("go")

    old = named(before)
    async with opened(url, old) as app:
        for name in ("r1", "r2"):
            await app.start_as(name, old)
            await until_status(app, name, "waiting_signal")
    async with opened(url, named(later)) as app:
        await app.start_as("r3", named(later))
        await until_status(app, "r3", "waiting_signal")
    async with opened(url, named(after)) as app:
        for name in ("r1", "r2", "r3"):
            await app.signal(name, "go")
            await until_status(app, name, "paused")
    async with open_client(url) as client:
        found = await migrate_all(client, "order", {"charge": "pay"})
        assert {each.run_id for each in found.migrated} == {"r1", "r2"}
        assert [(each.run_id, each.reason) for each in found.left] == [("r3", "none of these names is in its log")]
        again = await migrate_all(client, "order", {"charge": "pay"})
        assert again.migrated == ()
    async with opened(url, named(after)) as app:
        assert [await result_of(app, await app.get(name)) for name in ("r1", "r2")] == [[1, 2], [1, 2]]


async def test_a_bundle_carries_the_renames(url: str) -> None:
    await begun(url, before)
    async with open_client(url) as client:
        await client.migrate("run", {"charge": "pay"})
        bundle = await export_run(client, "run")
        log = await read_log(client.store, RunId("run"))
    async with open_client(f"{url}2") as client:
        await import_run(client, parse(render(bundle)))
        assert (await state_of(client, "run")).leaves.keys() == {"pay#1", "signal:go#1"}
    # The log says what happened, by the names of then.
    assert [event.body.leaf for event in log if isinstance(event.body, e.StepStarted)] == ["charge#1"]


# ---- which version a run is bound to


async def test_code_that_fits_binds_the_run_so_that_older_code_is_not_taken_for_wrong(url: str) -> None:
    async def old() -> Any:
        await charge(1)
        return await buoy.wait_signal("go")

    async def new() -> Any:
        await charge(1)
        await buoy.wait_signal("go")
        await ship(2)
        return await buoy.wait_signal("end")

    await begun(url, old)
    async with opened(url, named(new)) as app:
        await app.signal("run", "go")
        await until(lambda: _waits_for(app, "end"), "the second wait")
        assert (await state_of(app, "run")).version == named(new).version
    async with opened(url, named(old)) as app:
        await app.signal("run", "end", 7)
        state = await until_status(app, "run", "paused")
        assert state.pause is not None
        # Not "nondeterminism": this is an older version of the code than the one that continued the run.
        assert state.pause.reason == "version"
    async with opened(url, named(new)) as app:
        assert await result_of(app, await app.get("run")) == 7


async def _waits_for(app: Client, name: str) -> bool:
    return any(leaf.name == name for leaf in (await state_of(app, "run")).open.values())


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_without_a_version_is_bound_to_the_code_that_takes_it(is_async: bool, url: str) -> None:
    def plain() -> Any:
        return buoy.wait_signal("go")

    async def code() -> Any:
        return await buoy.wait_signal("go")

    workflow = named(code if is_async else plain)
    log = [e.Event(1, 1.0, e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}")), nonce="n")]
    async with store_at(url) as store:
        await plant(store, "run", log, cause="created")
    async with opened(url, workflow) as app:
        await until_status(app, "run", "waiting_signal")
        await until(lambda: _bound(app, workflow.version), "the version to be bound")
        (found,) = await bodies_of(app, "run", e.VersionBound)
        assert (found.version, found.previous) == (workflow.version, None)
        await app.signal("run", "go", 5)
        assert await result_of(app, await app.get("run")) == 5


async def _bound(app: Client, version: str) -> bool:
    return (await app.record("run")).document.version == version


# ---- scope


@pytest.mark.parametrize("within", [False, True])
async def test_code_appears_only_for_the_runs_of_its_scope(
    any_url: str, within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if within:
        monkeypatch.setenv("BUOY_ENV", "lab")
        monkeypatch.setenv("BUOY_STACK", "north")
    scopes = {"plain": (None, None), "lab": ("lab", None), "north": ("lab", "north"), "south": ("lab", "south")}
    async with store_at(any_url) as store:
        for name, (env, stack) in scopes.items():
            created = e.WorkflowCreated(workflow="helper", input=msgspec.Raw(b"{}"), env=env, stack=stack)
            bodies: list[e.Body] = [created, e.Paused(reason="version", detail="its code is gone")]
            await plant(store, name, [e.Event(seq, 1.0, body) for seq, body in enumerate(bodies, 1)])
    async with open_client(any_url) as client:
        client.registry.add(helper)
        await go_on_with_this_code(client)
        going = {name for name in scopes if "resumed" in await types_of(client, name)}
    assert going == ({"lab", "north"} if within else {"plain"})


async def test_versions_that_do_not_fit_do_not_take_turns(url: str) -> None:
    """Each of them is tried once, whatever else was tried since; the run's own version is always welcome."""

    def version(first: Any) -> Any:
        async def turns() -> list[Any]:
            return [await first(1), await buoy.wait_signal("go")]

        found = buoy.workflow(name="turns")(turns)
        found.version = first.name  # the hash of the source is the same for all three
        return found

    own, *others = (version(step) for step in (charge, pay, ship))
    async with opened(url, own) as app:
        await app.start_as("run", own)
        await until_status(app, "run", "waiting_signal")
    for number, code in enumerate([*others, *others]):
        async with opened(url, code) as app:
            await app.signal("run", "go", number)
            await until(partial(_rests, app, "run"), "the run to be looked at and given back")
            await until_status(app, "run", "paused")
    paused = [pause.tried_version for pause in await bodies_of_store(url, "run", e.Paused)]
    assert paused == [code.version for code in others]
    async with opened(url, own) as app:
        await go_on_with_this_code(app)
        assert await result_of(app, await app.get("run")) == [1, 0]


async def _rests(app: Any, run_id: str) -> bool:
    """Whether no runner holds the run, and its task is not due."""
    record = await app.record(run_id)
    return record.holder is None and record.due_at is None


async def bodies_of_store(url: str, run_id: str, kind: type[Any]) -> list[Any]:
    async with buoy.connect(url) as client:
        return await bodies_of(client, run_id, kind)
