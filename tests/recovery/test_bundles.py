"""Bundles: what goes out comes in the same, and what is broken stays out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.bundle.format import Bundle, parse, render
from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.engine.client.client import Client
from buoy.errors import BadInput, CorruptLog, TooLarge, WrongState
from buoy.operations.maintenance.bundles import export_run, import_run
from buoy.ports.records import Released, Wants, Write
from buoy.testing.contracts.harness import claimed, register

PAGE = Path(__file__).parents[2] / "docs" / "bundle.md"
KINDS = ("sqlite", "folder")


@asynccontextmanager
async def client_of(folder: Path, kind: str, name: str) -> AsyncIterator[Client]:
    url = f"sqlite:///{folder / name}.db" if kind == "sqlite" else f"file://{folder / name}"
    async with buoy.connect(url, actor="tester") as client:
        yield client


def played(test: Callable[[Client, Client], Awaitable[None]], folder: Path, kind: str, other: str) -> None:
    async def play() -> None:
        async with client_of(folder, kind, "here") as here, client_of(folder, other, "there") as there:
            await test(here, there)

    asyncio.run(play())


@buoy.step
async def charge(order: str) -> str:
    return f"paid {order}"


@buoy.workflow
async def checkout(order: str) -> str:
    receipt = await charge(order)
    await buoy.ask("Ship it?", kind="confirm")
    await buoy.wait_signal("packed")
    return receipt


async def waiting_run(client: Client, run_id: str = "run-1") -> None:
    """A real run that waits for an answer, with an unread signal."""
    async with buoy.open(client.store.name, workflows=[checkout]) as app:
        run = await app.start_as(run_id, checkout, "A-7")
        while (await client.record(run_id)).document.status != "awaiting_input":
            await client.store.wait_for_change(0.05)
        await run.signal("packed", {"boxes": 2})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_run_that_waits_comes_out_as_it_went_in(tmp_path: Path, kind: str, other: str) -> None:
    async def play(here: Client, there: Client) -> None:
        await waiting_run(here)
        first = render(await export_run(here, "run-1"))
        assert first == render(await export_run(here, "run-1"))
        done = await import_run(there, parse(first))
        assert (done.new, done.status, done.held, done.resumed) == (True, "paused", True, False)
        assert done.notes == done.doubts == ()
        assert render(await export_run(there, "run-1")) == first
        assert await there.store.claim_tasks(await register(there.store, "r1"), Wants(), 5) == []
        again = await import_run(there, parse(first))
        assert (again.new, again.status) == (False, "paused")
        assert render(await export_run(there, "run-1")) == first

    played(play, tmp_path, kind, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_brought_goes_on_where_it_was(tmp_path: Path, kind: str) -> None:
    async def play(here: Client, there: Client) -> None:
        await waiting_run(here)
        bundle = parse(render(await export_run(here, "run-1")))
        done = await import_run(there, bundle, resume=True)
        assert (done.resumed, done.held) == (True, False)
        async with buoy.open(there.store.name, workflows=[checkout]) as app:
            run = await app.get("run-1")
            await run.answer(True)
            assert await run.result() == "paid A-7"
        log = await there.store.events(RunId("run-1"))
        assert sum(isinstance(event.body, e.StepStarted) for event in log) == 1
        for resume in (False, True):
            again = await import_run(there, bundle, resume=resume)
            assert (again.new, again.resumed, again.status, again.continued) == (False, False, "completed", len(log))
        assert await there.store.events(RunId("run-1")) == log, "nothing was changed"
        other = parse(render(bundle))
        first = msgspec.structs.replace(other.log[0], nonce="another")
        with pytest.raises(WrongState, match="another log"):
            await import_run(there, msgspec.structs.replace(other, log=(first, *other.log[1:])))

    played(play, tmp_path, "sqlite", kind)


def test_a_run_that_ended_comes_out_as_it_went_in(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        await waiting_run(here)
        await here.cancel("run-1", "enough")
        first = render(await export_run(here, "run-1"))
        done = await import_run(there, parse(first), resume=True)
        assert (done.status, done.held, done.resumed) == ("cancelled", False, False)
        assert render(await export_run(there, "run-1")) == first

    played(play, tmp_path, "sqlite", "folder")


@pytest.mark.parametrize(("reason", "held"), [("user", False), ("version", True), ("nondeterminism", True)])
def test_a_pause_that_may_end_by_itself_becomes_a_hold(tmp_path: Path, reason: str, held: bool) -> None:
    async def play(here: Client, there: Client) -> None:
        bundle = bundle_of(claimed("r1"), e.Paused(reason=reason))
        done = await import_run(here, bundle, resume=True)
        assert done.resumed == held
        done = await import_run(there, bundle)
        assert (done.status, done.held) == ("paused", held)
        assert (await export_run(there, "run-1")).log == bundle.log

    played(play, tmp_path, "sqlite", "folder")


def test_the_example_of_the_documentation_can_be_imported(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
        done = await import_run(here, parse(example.encode()))
        assert (done.run_id, done.events, done.messages, done.held) == ("checkout-7", 7, 2, True)
        assert done.notes == ()
        first = render(await export_run(here, "checkout-7"))
        assert parse(first).log == parse(example.encode()).log
        await import_run(there, parse(first))
        assert render(await export_run(there, "checkout-7")) == first

    played(play, tmp_path, "sqlite", "folder")


@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_thousand_events_are_moved_in_time_that_grows_with_their_number(tmp_path: Path, kind: str) -> None:
    def bundle(run_id: str, count: int) -> Bundle:
        steps: list[e.Body] = []
        for number in range(count):
            leaf = LeafId(f"work#{number}")
            key = f"{run_id}/{leaf}/0"
            steps.append(e.StepStarted(leaf=leaf, name="work", args=msgspec.Raw(b'{"n": 1}'), key=key))
            steps.append(e.StepCompleted(leaf=leaf, result=msgspec.Raw(b'"done"')))
        return bundle_of(claimed("r1"), *steps, run_id=run_id)

    async def moved(here: Client, what: Bundle) -> float:
        """The processor time that it took: other processes do not make it longer."""
        began = process_time()
        await import_run(here, parse(render(what)))
        again = render(await export_run(here, what.run_id))
        took_s = process_time() - began
        assert parse(again).log == what.log
        return took_s

    async def play(here: Client, there: Client) -> None:
        few_s = await moved(here, bundle("few", 6_250))
        assert await moved(here, bundle("run-1", 49_998)) < 24 * few_s

    played(play, tmp_path, kind, "sqlite")


def bundle_of(*bodies: e.Body, run_id: str = "run-1", **fields: Any) -> Bundle:
    created = e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}"))
    log = tuple(e.Event(seq, 1000.0 + seq, body, nonce=f"n{seq}") for seq, body in enumerate((created, *bodies), 1))
    return Bundle(run_id=RunId(run_id), log=log, **fields)


def plain() -> dict[str, Any]:
    """A sound bundle as plain data, to be spoilt."""
    bundle = bundle_of(
        claimed("r1"),
        e.StepStarted(leaf=LeafId("a#1"), name="a"),
        e.StepCompleted(leaf=LeafId("a#1")),
        e.BranchCreated(branch=1, parent=0, cutoff_seq=2),  # type: ignore[arg-type]
        e.SignalWaited(leaf=LeafId("go#1"), name="go"),
    )
    found: dict[str, Any] = json.loads(render(bundle))
    found["log"][5]["branch"] = 1
    found["inbox"] = [
        {"number": 1, "kind": "signal", "dedupe": "d1", "body": {"name": "x"}, "sent_at": 1.0},
        {"number": 2, "kind": "signal", "dedupe": "d2", "body": {"name": "x"}, "sent_at": 1.0},
    ]
    return found


def spoil(path: str, value: object) -> bytes:
    """The sound bundle with one thing in it replaced; `...` removes it."""
    whole: Any = plain()
    *steps, last = [int(part) if part.lstrip("-").isdigit() else part for part in path.split(".")]
    place = whole
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(whole).encode()


WRONG = [
    (b"", "no bundle"),
    (b"\xff\xfe", "no bundle"),
    (b"[]", "no bundle"),
    (b"[" * 50_000, "no bundle"),
    (b'{"kind": "buoy-run"}', "format"),
    (spoil("kind", "tar"), "'tar'"),
    (spoil("format", 2), "format 2"),
    (spoil("format", "1"), "format"),
    (spoil("run_id", "../../etc"), "run id"),
    (spoil("run_id", 5), "run_id"),
    (spoil("extra", 5), "extra"),
    (spoil("log", {}), "log"),
    (spoil("log", []), "begins with nothing"),
    (spoil("log.0", ...), "begins with claimed"),
    (spoil("log.2", ...), "without gaps"),
    (spoil("log.2.seq", 2), "without gaps"),
    (spoil("log.2.seq", -(10**30)), "event"),
    (spoil("log.2.seq", "3"), "cannot be read"),
    (spoil("log.2.at", 1e300), "the time"),
    (spoil("log.2.at", None), "cannot be read"),
    (spoil("log.2.v", 7), "version 7"),
    (spoil("log.2.body", {"type": "step_exploded"}), "'step_exploded'"),
    (spoil("log.2.body", {"type": "step_started"}), "leaf"),
    (spoil("log.2.body.leaf", "a\x1b[2J#1"), "not printable"),
    (spoil("log.2.body.leaf", "a" * 2000), "too long"),
    (spoil("log.2.body.args", "x" * 2_000_000), "the limit is"),
    (spoil("log.0.body.workflow", "a b/c"), "workflow name"),
    (spoil("log.0.body.parent", {"run": "../x", "leaf": "a#1"}), "run id"),
    (spoil("log.3.body.message", 9), "message 9"),
    (spoil("log.3.body.message", 0), "message 0"),
    (spoil("log.3.branch", 4), "branch 4"),
    (spoil("log.4.body.parent", 3), "parent"),
    (spoil("log.4.body.branch", 0), "again"),
    (spoil("log.4.body.cutoff_seq", 99), "cutoff"),
    (spoil("log.5.body.due_at", -1), "its time"),
    (spoil("inbox.0.number", 2), "without gaps"),
    (spoil("inbox.1", {}), "inbox"),
    (spoil("inbox.1.dedupe", "d1"), "dedupe id of message 1"),
    (spoil("inbox.1.dedupe", ""), "dedupe"),
    (spoil("inbox.1.body", "x" * 300_000), "300,002 bytes"),
    (spoil("inbox.1.sent_at", 1e12), "the time"),
    (spoil("envelope.generation", "x"), "envelope"),
    (spoil("definitions", {"0123": {"name": "evil"}}), "not what its hash says"),
    (spoil("definitions", []), "definitions"),
    (spoil("log.2.body", {"type": "version_bound", "version": "2", "renamed": {"a": "x/b"}}), "same depth"),
    (spoil("log.2.body", {"type": "version_bound", "version": "2", "renamed": {"a": "b c"}}), "is not allowed"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_bundle_is_refused_with_the_reason_and_changes_nothing(tmp_path: Path, kind: str) -> None:
    async def play(here: Client, there: Client) -> None:
        for data, reason in WRONG:
            with pytest.raises(BadInput, match=re.escape(reason)):
                await import_run(here, parse(data), quarantine=True)
            assert (await here.runs()).runs == (), reason
        await import_run(here, parse(json.dumps(plain()).encode()))

    played(play, tmp_path, kind, "sqlite")


DOUBTFUL = [
    (spoil("log.2.body", {"type": "resumed"}), "resumed while"),
    (spoil("log.5.body", {"type": "step_completed", "leaf": "b#1"}), "not open"),
    (spoil("log.2.body", {"type": "workflow_created", "workflow": "order", "input": {}}), "workflow_created while"),
    (spoil("envelope.generation", 10**9), "generation"),
]


def test_a_doubtful_bundle_comes_in_on_hold_if_asked_for(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        for number, (data, reason) in enumerate(DOUBTFUL):
            bundle = parse(data.replace(b'"run-1"', f'"run-{number}"'.encode()))
            with pytest.raises(BadInput, match=reason):
                await import_run(here, bundle)
            done = await import_run(here, bundle, quarantine=True)
            assert (done.status, done.held) == ("paused", True)
            pause = (await here.record(bundle.run_id)).document.pause
            assert pause is not None and reason in (pause.detail or "")
        assert await here.store.claim_tasks(await register(here.store, "r1"), Wants(), 50) == []

    played(play, tmp_path, "sqlite", "sqlite")


def test_a_document_that_disagrees_is_told_and_not_believed(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        bundle = bundle_of(claimed("r1"), e.WorkflowCompleted())
        true = document(fold(bundle.run_id, bundle.log))
        lying = msgspec.structs.replace(true, workflow="other", claims=7)
        done = await import_run(here, msgspec.structs.replace(bundle, document=msgspec.Raw(msgspec.json.encode(lying))))
        assert done.notes == ("the document disagrees with the log about workflow, claims; the log was believed",)
        assert (await here.record("run-1")).document == true
        garbled = msgspec.structs.replace(bundle, document=msgspec.Raw(b"[1, 2]"))
        assert "cannot be read" in (await import_run(there, garbled)).notes[0]

    played(play, tmp_path, "sqlite", "sqlite")


def test_a_run_under_its_id_that_is_another_one_is_left_alone(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        await import_run(here, bundle_of(claimed("r1"), e.WorkflowCompleted()))
        for other in (
            bundle_of(claimed("r2"), e.WorkflowCompleted()),
            bundle_of(claimed("r1")),
        ):
            with pytest.raises(WrongState, match="exists already"):
                await import_run(here, other, quarantine=True)
        assert len(await here.store.events(RunId("run-1"))) == 3

    played(play, tmp_path, "sqlite", "sqlite")


def test_a_run_with_too_many_branches_to_fold_is_refused(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        branches = [
            e.BranchCreated(branch=number, parent=number - 1, cutoff_seq=1)  # type: ignore[arg-type]
            for number in range(1, 5000)
        ]
        with pytest.raises(BadInput, match="bounded time"):
            await import_run(here, bundle_of(*branches))

    played(play, tmp_path, "sqlite", "sqlite")


def test_a_run_with_too_many_renames_to_read_is_refused(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        renames = [e.VersionBound(version="2", renamed={f"a{number}": f"a{number + 1}"}) for number in range(5000)]
        with pytest.raises(BadInput, match="5,000 renames over 5,001 events"):
            await import_run(here, bundle_of(*renames))

    played(play, tmp_path, "sqlite", "sqlite")


def test_a_file_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buoy.core.bundle.format.BUNDLE_BYTES_MAX", 100)
    with pytest.raises(TooLarge, match="the limit is 100"):
        parse(b" " * 101)


def test_a_broken_log_cannot_be_exported_as_if_it_were_whole(tmp_path: Path) -> None:
    async def play(here: Client, there: Client) -> None:
        run_id = RunId("run-1")
        event = e.Event(1, 1.0, e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}")), nonce="n")
        await here.store.commit(
            [Write(run_id, 0, (event,), document(fold(run_id, [event])), Released(due_at=None, now=0.0))]
        )
        path = Path(here.store.name.removeprefix("file://"))
        (path / "workflow/run-1/log/000000000001.json").write_bytes(b"{")
        with pytest.raises(CorruptLog):
            await export_run(here, "run-1")

    played(play, tmp_path, "folder", "sqlite")
