"""The cases: each folder is a run as it was found, and what must be found and done about it, on every kind of store.

`bundle.json` is what `buoy import --as-found` takes; further ones (`bundle-2.json`) are other runs that it is about.
`expect.json` says, besides a line about the case:

    trouble, healthy    the codes that are found, in order; `healthy` only those that must be among them
    remedy, action      of the first trouble; what one recovery does in the end
    then                codes that are found only when the first remedies are done
    tail                the types of the events that the recovery appends
    branch, cutoff, kept, dropped, again        of the branch that is made
    audit               what the audit event must carry, its code and evidence
    status, task, generation, messages          of the run afterwards
    drives              how it stands when a worker has driven it (specs only); `once`: leaves that were started once
                        `asked_once`: the question that was asked once; `question`: the id of the one that is open
    refused             the bundle must be refused, with these words; nothing is stored
    doubts, error, reason                       words that the import, or the recovery, must say
    document_left       the document stays as it was found: only the log is judged
    runners, adopt, watched, stale_after_s      what is around it
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import buoy
from buoy.core.bundle.format import parse
from buoy.core.diagnosis.catalogue import CATALOGUE
from buoy.core.diagnosis.diagnose import diagnose
from buoy.core.diagnosis.document_drift import differing
from buoy.core.diagnosis.findings import Finding
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import State, fold
from buoy.engine.read_log import read_log
from buoy.errors import BadInput
from buoy.operations.maintenance.bundles import Imported, import_run
from buoy.ports.records import Beat, RunRecord
from buoy.ports.store import Store
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import read_fleet
from buoy.recovery.recover import Recovery, recover_run
from buoy.stores import open_store
from buoy.testing.clock import ManualClock
from tests.patience import PATIENCE_S
from tests.postgres_server import open_timed, query, timed_url
from tests.recovery.harness import KINDS, Deaths, RecoveryHarness

FOLDER = Path(__file__).parent
CASES = sorted(path.parent.name for path in FOLDER.glob("*/expect.json"))
# When the cases were found.
NOW = 1_767_225_600.0
# Unless the case says otherwise, a living runner could take the run.
ANYBODY = {"r2": "alive"}
KNOWN: dict[str, tuple[str, ...]] = {"order": (), "part": (), "spec:pair": (), "spec:nightly": (), "spec:fan": ()}
# All that `expect.json` may hold.
EXPECTATIONS = {
    *(
        "about",
        "trouble",
        "healthy",
        "remedy",
        "action",
        "then",
        "tail",
        "branch",
        "cutoff",
        "kept",
        "dropped",
        "again",
    ),
    *("audit", "status", "task", "generation", "messages", "drives", "once", "refused", "runners", "adopt", "watched"),
    *("stale_after_s", "doubts", "error", "reason", "document_left", "asked_once", "question"),
}
_SINCE_THEN = """UPDATE {schema}.runs
    SET updated_at = coalesce(({schema}.as_json(doc) ->> 'updated_at')::double precision, updated_at)"""
# What cannot be read is refused as a bundle. What concerns allocations is found with a scheduler alone.
NOT_IN_BUNDLES = {"R1", "J1", "J2", "J3", "J4", "J5", "J6", "J7"}


class Case:
    """One folder, brought into one store."""

    def __init__(self, name: str) -> None:
        folder = FOLDER / name
        self.expect: dict[str, Any] = json.loads((folder / "expect.json").read_text())
        self.files = [folder / "bundle.json", *sorted(folder.glob("bundle-*.json"))]
        self.run_id = RunId(json.loads(self.files[0].read_text())["run_id"])

    def url(self, place: Path, kind: str) -> str:
        return f"sqlite:///{place / 'runs.db'}" if kind == "sqlite" else f"file://{place / 'runs'}"


async def _brought(case: Case, harness: RecoveryHarness) -> Imported:
    done = [await import_run(harness.client, parse(path.read_bytes()), as_found=True) for path in case.files]
    for name, state in case.expect.get("runners", ANYBODY).items():
        runner = await harness.runner(name, dead=state == "dead", workflows=KNOWN)
        await harness.store.beat(runner, Beat(number=1))
    return done[0]


async def _findings(case: Case, harness: RecoveryHarness) -> tuple[RunRecord, list[Finding]]:
    record = await harness.client.record(case.run_id)
    people = await read_fleet(harness.store, harness.client.liveness)
    stale, watched = case.expect.get("stale_after_s"), case.expect.get("watched")
    facts, _ = await facts_of_run(harness.store, people, record, stale_after_s=stale, stream_open=watched)
    return record, diagnose(facts)


def _check_findings(case: Case, found: list[Finding]) -> None:
    expect = case.expect
    assert [each.code for each in found if each.trouble] == expect["trouble"], found
    assert set(expect.get("healthy", [])) <= {each.code for each in found if not each.trouble}, found
    assert all(each.reason and "\n" not in each.reason for each in found)
    if expect["trouble"]:
        assert next(each for each in found if each.trouble).remedy == expect["remedy"]


def _around(case: Case) -> dict[str, Any]:
    """The facts about the case that a recovery gets."""
    return {"stale_after_s": case.expect.get("stale_after_s"), "stream_open": case.expect.get("watched")}


async def _recovered(case: Case, harness: RecoveryHarness) -> Recovery:
    expect = case.expect
    how = {"adopt": expect.get("adopt", False), **_around(case)}
    dry = await recover_run(harness.client, case.run_id, dry_run=True, **how)
    before = await read_log(harness.store, case.run_id)
    done = await recover_run(harness.client, case.run_id, **how)
    after = await read_log(harness.store, case.run_id)
    assert after[: len(before)] == before, "nothing is removed or changed"
    tail = [event.type for event in after[len(before) :]]
    assert (tail, done.action) == (expect["tail"], expect["action"]), done
    assert expect.get("error", "") in (done.error or ""), done
    assert done.error is None or "error" in expect, done
    assert dry.needed == done.needed and (dry.new_branch_id is None or done.new_branch_id is not None)
    assert expect.get("reason", "") in (done.reason or "")
    _check_branch(case, dry, done, after[len(before) :])
    return done


def _check_branch(case: Case, dry: Recovery, done: Recovery, tail: list[e.Event]) -> None:
    expect = case.expect
    made = [event.body for event in tail if isinstance(event.body, e.BranchCreated)]
    assert done.new_branch_id == expect.get("branch", done.new_branch_id)
    if "branch" in expect:
        assert (made[0].branch, made[0].cutoff_seq) == (expect["branch"], expect["cutoff"])
        for name in ("kept", "dropped"):
            assert list(getattr(made[0], name)) == expect.get(name, list(getattr(made[0], name)))
        audits = [event.body for event in tail if isinstance(event.body, e.WorkflowRecovered)]
        audit = next(body for body in audits if body.new_branch == expect["branch"])
        assert (audit.cutoff_event, audit.actor) == (expect["cutoff"], "sweeper-1")
        assert audit.finding in [*expect["trouble"], *expect.get("then", [])]
    if "audit" in expect:
        audit = next(event.body for event in tail if isinstance(event.body, e.WorkflowRecovered))
        assert {**audit.evidence, "finding": audit.finding}.items() >= expect["audit"].items(), audit
    if "again" in expect:
        assert dry.plan is not None and list(dry.plan.again) == expect["again"], dry.plan


async def _check_after(case: Case, harness: RecoveryHarness) -> State | None:
    expect = case.expect
    record = await harness.client.record(case.run_id)
    log = await read_log(harness.store, case.run_id)
    assert (record.document.status if expect.get("document_left") is None else _status(log)) == expect["status"]
    task = (
        "held" if record.holder else "missing" if not record.has_task else "parked" if record.due_at is None else "due"
    )
    assert task == expect["task"]
    assert record.envelope.generation == expect.get("generation", record.envelope.generation)
    assert len(await harness.store.inbox(case.run_id)) >= expect.get("messages", 0)
    if not log:
        return None
    state = fold(case.run_id, log)
    if not expect.get("document_left"):
        assert differing(record.document, document(state)) == [], "the document says what the log says"
    return state


def _status(log: list[e.Event]) -> str:
    return document(fold(RunId("any"), log)).status


async def _check_settled(case: Case, harness: RecoveryHarness) -> None:
    """Recovering again does nothing more, and what is left is only what others must do."""
    before = await read_log(harness.store, case.run_id)
    again = await recover_run(harness.client, case.run_id, **_around(case))
    assert again.action in ("none", "report", "skip"), again
    assert await read_log(harness.store, case.run_id) == before


@pytest.mark.parametrize("kind", [*KINDS, "postgres"])
@pytest.mark.parametrize("name", CASES)
def test_what_was_found_is_diagnosed_and_recovered_as_expected(tmp_path: Path, name: str, kind: str) -> None:
    case = Case(name)

    async def play() -> None:
        clock = ManualClock(NOW)
        url = timed_url() if kind == "postgres" else case.url(tmp_path, kind)
        store = await (open_timed(url, clock, clock) if kind == "postgres" else open_store(url, clock))
        # A store with a clock dates a copy by its import. The case is that it has had the run all the while.
        await play_case(case, store, clock, (lambda: query(url, _SINCE_THEN)) if kind == "postgres" else None)
        if "drives" in case.expect:
            await _drive(case, url)

    asyncio.run(play())


async def play_case(case: Case, store: Store, clock: ManualClock, age: Callable[[], object] | None = None) -> None:
    """Brings the case into a new store, recovers it, and closes the store. `age`: makes the runs as old as they say."""
    try:
        harness = RecoveryHarness(store, clock, Deaths())
        if "refused" in case.expect:
            with pytest.raises(BadInput) as refused:
                await _brought(case, harness)
            assert case.expect["refused"] in str(refused.value)
            assert (await harness.client.runs()).runs == ()
            return
        done = await _brought(case, harness)
        if age is not None:
            age()
        assert case.expect.get("doubts", "") in " ".join(done.doubts)
        _, found = await _findings(case, harness)
        _check_findings(case, found)
        await _recovered(case, harness)
        await _check_after(case, harness)
        await _check_settled(case, harness)
    finally:
        await store.close()


async def _drive(case: Case, url: str) -> None:
    """A real worker takes it from there."""
    expect = case.expect
    async with asyncio.timeout(PATIENCE_S), buoy.open(url, specs=True) as app:
        while True:
            state = await app.state(case.run_id)
            if state.status == expect["drives"] and (state.status != "awaiting_input" or _asked(state)):
                break
            await app.store.wait_for_change(0.05)
    log = await read_log_of(url, case.run_id)
    for leaf in expect.get("once", []):
        begun = [event for event in log if e.leaf_of(event.body) == leaf and event.type.endswith("_started")]
        assert len(begun) == 1, f"{leaf} was executed again"
    if "asked_once" in expect:
        asked = [event for event in log if isinstance(event.body, e.InteractionRequested)]
        assert [event.body.leaf for event in asked] == [expect["asked_once"]]  # type: ignore[union-attr]
    if "question" in expect:
        (leaf,) = [leaf for leaf in state.open.values() if leaf.kind == "ask"]
        assert leaf.question_id == expect["question"]


def _asked(state: State) -> bool:
    return any(leaf.kind == "ask" for leaf in state.open.values())


async def read_log_of(url: str, run_id: RunId) -> list[e.Event]:
    async with buoy.connect(url) as client:
        return await read_log(client.store, run_id)


def test_every_code_of_the_catalogue_has_a_case() -> None:
    found: set[str] = set()
    for name in CASES:
        expect = Case(name).expect
        found |= {*expect.get("trouble", []), *expect.get("healthy", [])}
    assert found == CATALOGUE.keys() - NOT_IN_BUNDLES


def test_every_expectation_is_read_by_somebody() -> None:
    """A misspelt or forgotten key would expect nothing."""
    unknown = {name: sorted(Case(name).expect.keys() - EXPECTATIONS) for name in CASES}
    assert {name: keys for name, keys in unknown.items() if keys} == {}


def test_every_case_says_what_it_is_about() -> None:
    for name in CASES:
        assert Case(name).expect["about"].endswith("."), name
