"""Runs that release 0.1.0 stored: today's code reads, explains and ends them, on both stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import buoy
from buoy.core.bundle.format import parse
from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.document_drift import difference
from buoy.core.explain.explain import explain
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.engine.read_log import read_log
from buoy.operations.maintenance.bundles import import_run
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import read_fleet
from buoy.recovery.sweep.resume_paused import go_on_with_this_code
from tests.fixtures.release_0_1_0 import flows, flows_later
from tests.fixtures.release_0_1_0.runs import BUNDLES, STATUS, STORES, stored
from tests.patience import PATIENCE_S, until

# How a run ends that stood so; all others complete.
ENDS = {"failed": "failed", "compensating": "failed", "cancelled": "cancelled"}
# Troubles of runs without a driver are no fault of their form.
NOBODY = {"Q5", "H2", "P1", "Q4", "B2"}


async def _check_told(client: Client, run_id: str) -> None:
    """A log, its document and the words about it agree, no matter which release wrote them."""
    record = await client.record(run_id)
    log = await read_log(client.store, RunId(run_id))
    assert difference(record.document, document(fold(RunId(run_id), log))) is None
    people = await read_fleet(client.store, client.liveness)
    facts, _ = await facts_of_run(client.store, people, record)
    assert facts.drift is None and facts.unreadable is None
    assert {each.code for each in diagnose(facts) if each.trouble} <= NOBODY
    told = explain(facts)
    assert told.headline and told.now and told.next


def test_there_is_a_bundle_of_every_run() -> None:
    assert {path.stem for path in BUNDLES} == STATUS.keys()


@pytest.mark.parametrize("kind", STORES)
def test_every_run_of_an_old_store_is_read_and_explained(tmp_path: Path, kind: str) -> None:
    async def look() -> None:
        async with buoy.connect(stored(kind, tmp_path)) as client:
            shown = {each.document.run_id: each.document.status for each in (await client.runs()).runs}
            assert shown == STATUS
            for run_id in shown:
                await _check_told(client, run_id)

    asyncio.run(look())


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.stem)
def test_an_old_bundle_is_imported_and_exported_again(tmp_path: Path, path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}" if kind == "sqlite" else f"file://{tmp_path / 'new'}"

    async def look() -> None:
        bundle = parse(path.read_bytes())
        async with buoy.connect(url) as client:
            done = await import_run(client, bundle, as_found=True)
            assert (done.new, done.doubts, done.status) == (True, (), STATUS[path.stem])
            await _check_told(client, bundle.run_id)
            assert await read_log(client.store, bundle.run_id) == list(bundle.log)

    asyncio.run(look())


async def _person(app: Client) -> None:
    """Says all that the runs wait for."""
    for run_id in ("awaiting-input", "waiting-child.asking-ecf9cdb58dbd", "spec"):
        await app.answer(run_id, True)
    for run_id in ("paused-user", "paused-code", "quarantined"):
        await app.resume(run_id)
    for run_id in ("waiting-signal", "paused-user"):
        await app.signal(run_id, "packed", "by hand")


@pytest.mark.parametrize("kind", STORES)
def test_every_run_of_an_old_store_comes_to_its_end(tmp_path: Path, kind: str) -> None:
    """Replayed from its old log by today's code, whatever had happened to it."""

    # The spec's run was started in this directory, and its commands are executed there.
    Path("/tmp/buoy-0.1.0").mkdir(exist_ok=True)

    async def drive() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            buoy.open(stored(kind, tmp_path), workflows=flows.WORKFLOWS, specs=True) as app,
        ):
            await _person(app)
            for run_id, status in STATUS.items():
                ends = ENDS.get(status, "completed")

                async def ended(run_id: str = run_id, ends: str = ends) -> bool:
                    return (await app.record(run_id)).document.status == ends

                await until(ended, f"{run_id} to be {ends}")
                await _check_told(app, run_id)

    asyncio.run(drive())


@pytest.mark.parametrize("kind", STORES)
def test_a_retry_of_an_old_run_begins_at_the_step_that_ended_it(tmp_path: Path, kind: str) -> None:
    """`a#1` failed after `data#1`, was caught, and its id occurs in the text about `data#1`."""

    async def retry() -> None:
        url = stored(kind, tmp_path)
        async with asyncio.timeout(PATIENCE_S), buoy.open(url, workflows=flows.WORKFLOWS) as app:
            assert "data#1" in (await app.plan_retry("failed-step")).again
            assert (await app.plan_retry("failed-child")).again == ("failed_step#1",)
            assert (await app.plan_retry("failed-code")).again == ()
            for run_id in ("failed-step", "failed-child"):
                await app.retry(run_id)
                assert await (await app.get(run_id)).result() == "salt there after all"

    asyncio.run(retry())


@pytest.mark.parametrize("kind", STORES)
def test_an_old_run_that_waits_for_code_is_tried_once_with_each_version(tmp_path: Path, kind: str) -> None:
    """An old document does not say which code was tried; its log does, as a sentence."""

    async def look() -> None:
        url = stored(kind, tmp_path)
        async with asyncio.timeout(PATIENCE_S), buoy.open(url, workflows=[flows_later.renamed]) as app:
            assert await go_on_with_this_code(app) == 0
            state = await app.state("paused-version")
            assert state.pause is not None and state.pause.tried_version == flows_later.renamed.version
            assert state.pause.difference == e.Difference(LeafId("fetch#1"), LeafId("obtain#1"), 4)
            facts, _ = await facts_of_run(
                app.store, await read_fleet(app.store, app.liveness), await app.record("paused-version")
            )
            told = " ".join(explain(facts).you_can)
            assert "buoy migrate paused-version --rename fetch=obtain --dry-run" in told
        async with asyncio.timeout(PATIENCE_S), buoy.open(url, workflows=[flows.renamed]) as app:
            assert await (await app.get("paused-version")).result() == "salt again fetched"

    asyncio.run(look())
