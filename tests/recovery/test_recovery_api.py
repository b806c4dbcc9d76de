"""`buoy.scan`, `buoy.sweep`, `buoy.reconcile` and `buoy.recover`, as a program calls them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

import buoy
from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.engine.client.run import Run
from buoy.errors import BadInput
from buoy.ports.records import Held, Released
from tests.core.logbook import claimed, started

from .harness import KINDS, RecoveryHarness, created, opened, play
from .many_orphans import abandon, orphan
from .test_sweep import UNDER_WAY, counts, left_behind

POLICIES = ("resume", "restart", "fail", "hold")


@buoy.workflow(name="order", recovery="restart")
async def order() -> None: ...


async def orphaned(harness: RecoveryHarness, name: str, policy: str = "resume", **more: Any) -> None:
    """A run in the middle of a step, held by a runner that never was."""
    await harness.plant(name, created(policy, **more), *UNDER_WAY, task=Held(cast(Any, "never-registered")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sweep_of_a_client_counts_what_it_did(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await left_behind(harness)
        dry = await buoy.sweep(harness.client, dry_run=True)
        found = await buoy.sweep(harness.client)
        assert counts(dry) == counts(found) == {"scanned": 4, "restarted": 1, "resumed": 1, "failed": 1, "held": 1}

    play(tmp_path, test, kind)


def test_the_url_of_a_store_is_enough_and_so_is_a_program_without_a_loop(tmp_path: Path) -> None:
    async def leave() -> None:
        async with opened(tmp_path) as harness:
            await orphaned(harness, "one")
            await orphaned(harness, "two", "fail")

    asyncio.run(leave())
    url = f"sqlite:///{tmp_path}/runs.db"
    seen = asyncio.run(buoy.scan(url))
    assert {each.run_id: each.action for each in seen.found} == {"one": "resume", "two": "fail"}
    assert asyncio.run(buoy.recover("two", url)).action == "fail"
    swept = asyncio.run(buoy.sweep(url))
    assert (swept.resumed, swept.failed) == (1, 0)
    assert asyncio.run(buoy.reconcile(url)).replayed == 0


def test_the_configured_store_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave() -> None:
        async with opened(tmp_path) as harness:
            await orphaned(harness, "one")

    asyncio.run(leave())
    monkeypatch.setenv("BUOY_STORE", f"sqlite:///{tmp_path}/runs.db")
    assert asyncio.run(buoy.sweep()).resumed == 1


def test_something_else_than_a_client_or_a_url_is_refused() -> None:
    with pytest.raises(BadInput, match="neither a client nor the URL of a store"):
        asyncio.run(buoy.sweep(cast(Any, 7)))


@pytest.mark.parametrize(
    ("given", "action"),
    [
        ({}, "resume"),
        ({"registry": {"order": "fail"}}, "fail"),
        ({"registry": {"order": order}}, "restart"),
        ({"registry": {"another": "fail"}}, "resume"),
        ({"resolve_policy": lambda document: "hold"}, "hold"),
        ({"registry": {"order": "fail"}, "resolve_policy": lambda document: "hold"}, "hold"),
        ({"registry": {"order": "fail"}, "resolve_policy": lambda document: None}, "fail"),
    ],
)
def test_the_policy_is_the_callers_before_that_of_the_run(tmp_path: Path, given: dict[str, Any], action: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await orphaned(harness, "order-1")
        (found,) = (await buoy.scan(harness.client, **given)).found
        assert found.action == action
        assert (await buoy.recover("order-1", harness.client, dry_run=True, **given)).action == action
        swept = await buoy.sweep(harness.client, **given)
        words = {"resume": "resumed", "restart": "restarted", "fail": "failed", "hold": "held"}
        assert counts(swept) == {"scanned": 1, words[action]: 1}

    play(tmp_path, test)


@pytest.mark.parametrize(
    ("registry", "told"),
    [
        ({"order": "retry"}, "unknown policy for 'order': 'retry'; choose resume, restart, fail, hold"),
        ({"checkout": order}, "registry names 'checkout' for workflow 'order'; use the workflow's own name"),
    ],
)
def test_a_wrong_registry_is_refused_before_anything_is_touched(
    tmp_path: Path, registry: dict[str, Any], told: str
) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await orphaned(harness, "order-1")
        for call in (buoy.sweep, buoy.scan):
            with pytest.raises(BadInput, match=told):
                await call(harness.client, registry=registry)
        assert (await harness.record("order-1")).holder == "never-registered"

    play(tmp_path, test)


def test_a_failing_policy_lookup_skips_that_run_and_no_other(tmp_path: Path) -> None:
    def resolve(document: Document) -> str:
        if document.run_id == "bad":
            raise KeyError("no such tenant")
        return "restart"

    async def test(harness: RecoveryHarness) -> None:
        await orphaned(harness, "bad")
        await orphaned(harness, "good")
        found = await buoy.sweep(harness.client, resolve_policy=resolve)
        assert (found.restarted, found.skipped) == (1, 1)
        assert "KeyError: 'no such tenant'" in found.troubles[0]

    play(tmp_path, test)


def test_the_stack_and_env_are_the_clients_unless_the_caller_names_them(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        timer = e.TimerStarted(leaf=started("t#1").leaf, due_at=harness.clock.now() - 100.0)
        for name, stack, env in (("a", "one", "prod"), ("b", "two", "prod"), ("c", "one", None), ("d", None, "prod")):
            await harness.plant(name, created(stack=stack, env=env), claimed("r1"), timer)
        harness.client.stack, harness.client.env = "one", "prod"

        async def seen(**named: str | None) -> str:
            found = await buoy.scan(harness.client, stale_after="0s", **cast(Any, named))
            return "".join(sorted(each.run_id for each in found.found))

        assert await seen() == "ad"
        assert await seen(stack=None) == "abd"
        assert await seen(stack="two") == "bd"
        assert await seen(env=None) == "c", "no env is an env of its own"
        assert (await buoy.reconcile(harness.client, env=None)).replayed == 1
        assert (await buoy.reconcile(harness.client)).replayed == 2
        assert (await buoy.sweep(harness.client, stack=None, stale_after=0)).resumed == 1

    play(tmp_path, test)


def test_one_run_is_recovered_by_id_or_by_handle(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await orphaned(harness, "one")
        run: Run[Any] = await harness.client.get("one")
        done = await buoy.recover(run)
        assert (done.needed, done.action, done.error) == (True, "resume", None)
        again = await buoy.recover("one", harness.client)
        assert (again.needed, again.new_branch_id, again.reason) == (False, None, None)
        with pytest.raises(buoy.UnknownRun):
            await buoy.recover("nobody", harness.client)

    play(tmp_path, test)


def test_a_stream_that_stayed_open_is_told_to_the_recovery(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.runner("able", workflows={"order": ("",)})
        later = harness.clock.now() + 600.0
        await harness.plant("late", created(), *UNDER_WAY, task=Released(due_at=later, now=harness.clock.now()))
        assert not (await buoy.recover("late", harness.client)).needed
        done = await buoy.recover("late", harness.client, stream_open=True)
        assert done.needed and str(done.reason).startswith("F1")
        assert (await harness.record("late")).due_at == harness.clock.now()
        queued = await buoy.recover("late", harness.client, stream_open=True)
        assert not queued.needed and "queued for" in str(queued.note)

    play(tmp_path, test)


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_brings_back_what_a_killed_process_left(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A real process, ended by SIGKILL; its death is proven by its lock."""
    url = f"sqlite:///{tmp_path}/runs.db" if kind == "sqlite" else f"file://{tmp_path}/runs"
    abandon(url, 8)
    caplog.set_level("INFO", logger="buoy.recovery")
    swept = asyncio.run(buoy.sweep(url))
    assert (swept.resumed, swept.restarted, swept.failed, swept.held, swept.dead_runners) == (2, 2, 2, 2, 1)
    told = [getattr(each, "run_id", None) for each in caplog.records if each.name == "buoy.recovery"]
    assert sorted(map(str, told)) == [orphan(number)[0] for number in range(8)]
    again = asyncio.run(buoy.sweep(url))
    assert (again.resumed, again.restarted, again.failed, again.held) == (0, 0, 0, 0)
