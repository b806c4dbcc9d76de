"""Bundles as they were found: document, envelope and task come as the file has them, and go out the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from buoy.core.bundle.format import Bundle, BundleEnvelope, BundleTask, parse, render
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import Document, document
from buoy.core.log.lifecycle import Status
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.errors import BadInput, WrongState
from buoy.operations.maintenance.bundles import export_run, import_run
from buoy.ports.records import Wants
from buoy.testing.contracts.harness import claimed, register

from .test_bundles import KINDS, bundle_of, played

RUN = RunId("run-1")
TASK = "run-1:orchestrate:1"


def halfway(**fields: Any) -> Bundle:
    """A run that a dead runner left with a step under way."""
    return bundle_of(claimed("lost"), e.StepStarted(leaf=LeafId("a#1"), name="a"), **fields)


def raw(told: Document) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(told))


def truth_of(bundle: Bundle) -> Document:
    return document(fold(bundle.run_id, bundle.log))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("tasks", "state", "holder", "orphaned"),
    [
        ((), "missing", None, True),
        ((BundleTask(TASK, state="held", holder="lost"),), "held", "lost", True),
        ((BundleTask(TASK, holder="lost"),), "held", "lost", True),
        ((BundleTask(TASK, state="parked"),), "parked", None, False),
        ((BundleTask(TASK),), "due", None, False),
        ((BundleTask("run-1:orchestrate:7"),), "missing", None, True),
        (None, "due", None, False),
    ],
)
def test_the_task_comes_as_it_was(
    tmp_path: Path, kind: str, tasks: tuple[BundleTask, ...] | None, state: str, holder: str | None, orphaned: bool
) -> None:
    async def play(here: Client, there: Client) -> None:
        done = await import_run(here, halfway(tasks=tasks), as_found=True)
        assert (done.new, done.status, done.held, done.task) == (True, "running", False, state)
        record = await here.record(RUN)
        assert (record.holder, record.has_task) == (holder, state != "missing")
        assert (await here.store.events(RUN)) == list(halfway().log), "nothing is added"
        assert [orphan.run_id for orphan in await here.store.orphans(5)] == ([RUN] if orphaned else [])
        taken = await here.store.claim_tasks(await register(here.store, "r1"), Wants(), 5)
        assert [task.run_id for task in taken] == ([RUN] if state == "due" else [])
        again = await import_run(here, halfway(tasks=tasks), as_found=True)
        assert not again.new

    played(play, tmp_path, kind, "sqlite")


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_that_lies_is_kept_and_goes_out_the_same(tmp_path: Path, kind: str) -> None:
    async def play(here: Client, there: Client) -> None:
        honest = halfway(tasks=(BundleTask(TASK, "order", state="held", holder="lost"),))
        lie = msgspec.structs.replace(truth_of(honest), status=Status.AWAITING_INPUT, open=(), open_count=0)
        bundle = msgspec.structs.replace(
            honest, document=raw(lie), envelope=BundleEnvelope(1, TASK), inbox=(_message(),)
        )
        done = await import_run(here, bundle, as_found=True)
        assert done.doubts == ("the document disagrees with the log about status, open, open_count",)
        assert (await here.record(RUN)).document == lie
        first = render(await export_run(here, RUN, as_found=True))
        assert parse(first) == bundle
        await import_run(there, parse(first), as_found=True)
        assert render(await export_run(there, RUN, as_found=True)) == first

    played(play, tmp_path, kind, "folder" if kind == "sqlite" else "sqlite")


def _message() -> Any:
    from buoy.core.bundle.format import BundleMessage

    return BundleMessage(1, "signal", "d1", msgspec.Raw(b'{"name":"go"}'), 1.0, "ann")


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_wake_up_stays_lost(tmp_path: Path, kind: str) -> None:
    async def play(here: Client, there: Client) -> None:
        bundle = bundle_of(
            claimed("lost"), e.SignalWaited(leaf=LeafId("go#1"), name="go"),
            inbox=(_message(),), tasks=(BundleTask(TASK, state="parked"),),
        )  # fmt: skip
        await import_run(here, bundle, as_found=True)
        assert await here.store.claim_tasks(await register(here.store, "r1"), Wants(), 5) == []
        assert [message.number for message in await here.store.inbox(RUN)] == [1]

    played(play, tmp_path, kind, "sqlite")


def test_a_document_that_only_lags_is_noted(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        bundle = halfway()
        older = document(fold(RUN, bundle.log[:2]))
        done = await import_run(here, msgspec.structs.replace(bundle, document=raw(older)), as_found=True)
        assert (done.doubts, done.notes) == ((), ("the document is at event 2, the log ends at 3",))

    played(play, tmp_path, "sqlite", "sqlite")


def test_a_document_that_cannot_be_read_is_made_from_the_log(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        bundle = msgspec.structs.replace(halfway(), document=msgspec.Raw(b'{"status": "dreaming"}'))
        done = await import_run(here, bundle, as_found=True)
        assert "cannot be read" in done.doubts[0]
        assert (await here.record(RUN)).document == truth_of(bundle)

    played(play, tmp_path, "sqlite", "sqlite")


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_a_log_can_be_kept(tmp_path: Path, kind: str) -> None:
    async def play(here: Client, there: Client) -> None:
        told = msgspec.structs.replace(truth_of(halfway()), head_seq=12)
        foreign = Bundle(run_id=RUN, log=(), document=raw(told))
        done = await import_run(here, foreign, as_found=True)
        assert (done.new, done.status, done.task, done.events) == (True, "running", "missing", 0)
        record = await here.record(RUN)
        assert (record.document, record.envelope.orchestrator_task_id) == (told, None)
        assert await here.store.orphans(5) == []
        assert not (await import_run(here, foreign, as_found=True)).new
        exported = await export_run(here, RUN, as_found=True)
        assert (exported.log, exported.tasks, exported.document) == ((), (), raw(told))
        await import_run(there, parse(render(exported)), as_found=True)
        other = msgspec.structs.replace(foreign, document=raw(msgspec.structs.replace(told, claims=9)))
        with pytest.raises(WrongState, match=r"exists already in .* and differs"):
            await import_run(here, other, as_found=True)
        with pytest.raises(BadInput, match="begins with nothing"):
            await import_run(there, msgspec.structs.replace(foreign, run_id=RunId("x")))

    played(play, tmp_path, kind, "sqlite")


def _spoilt(**document_fields: object) -> Bundle:
    told = json.loads(bytes(raw(truth_of(halfway()))))
    return msgspec.structs.replace(halfway(), document=msgspec.Raw(json.dumps({**told, **document_fields}).encode()))


WRONG = [
    (_spoilt(run_id="another"), "the document is that of 'another'"),
    (_spoilt(workflow="a\x1b[2Jb"), "not printable"),
    (_spoilt(workflow="a b"), "workflow name"),
    (_spoilt(queue=""), "queue"),
    (_spoilt(updated_at=1e300), "which is none"),
    (_spoilt(wake_at=-5), "which is none"),
    (_spoilt(owner="x" * 2_000), "too long"),
    (_spoilt(error={"type": "E", "message": "x" * 1_100_000}), "bytes, the limit is"),
    (_spoilt(parent={"run": "../x", "leaf": "a#1"}), "run id"),
    (halfway(tasks=(BundleTask(TASK, state="held"),)), "no holder is named"),
    (halfway(tasks=(BundleTask(TASK, holder="../x"),)), "run id"),
    (halfway(tasks=(BundleTask(TASK, due_at=-1.0),)), "no time"),
    (halfway(envelope=BundleEnvelope(0)), "generation is 0"),
    (halfway(envelope=BundleEnvelope(10**30)), "generation is"),
    (Bundle(run_id=RUN, log=()), "neither a log nor a document"),
    (Bundle(run_id=RUN, log=(), document=msgspec.Raw(b"[]")), "neither a log nor a document"),
    (Bundle(run_id=RUN, log=(), document=raw(truth_of(halfway())), inbox=(_message(),)), "has no log, but an inbox"),
    (msgspec.structs.replace(halfway(), log=halfway().log[1:]), "begins with claimed"),
    (msgspec.structs.replace(halfway(), log=halfway().log[:1] + halfway().log[2:]), "without gaps"),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_store_could_keep_is_refused_here_too(tmp_path: Path, kind: str) -> None:
    async def play(here: Client, there: Client) -> None:
        for bundle, reason in WRONG:
            with pytest.raises(BadInput, match=re.escape(reason)):
                await import_run(here, bundle, as_found=True)
            assert (await here.runs()).runs == (), reason
        await import_run(here, halfway(), as_found=True)

    played(play, tmp_path, kind, "sqlite")


def test_another_run_under_its_id_is_left_alone(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        await import_run(here, bundle_of(claimed("other")), as_found=True)
        with pytest.raises(WrongState, match="exists already"):
            await import_run(here, halfway(), as_found=True)

    played(play, tmp_path, "sqlite", "sqlite")
