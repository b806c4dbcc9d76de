"""What is gathered about a run: on both stores, in one look, and never an absence out of an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from buoy.core.diagnosis.facts import Facts
from buoy.core.ids import RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.core.spec.model import Spec, SpecStep, spec_hash, stored_form
from buoy.errors import Unavailable
from buoy.ports.records import Held, Message, Released, Write
from buoy.ports.store import Store
from buoy.recovery.evidence import facts_of_run
from buoy.recovery.fleet import read_fleet
from buoy.recovery.surroundings import children_of
from tests.core.logbook import answered, asked, awaited, child, claimed, completed, started

from .harness import KINDS, RecoveryHarness, created, play

SPEC = Spec(
    name="s",
    steps=(
        SpecStep(id="a", run="true", needs=()),
        SpecStep(id="b", run="true", needs=("a",)),
        SpecStep(id="c", run="x"),
    ),
)


async def looked_at(harness: RecoveryHarness, run_id: str, store: Store | None = None) -> Facts:
    seen = store or harness.store
    people = await read_fleet(harness.store, harness.deaths)
    return (await facts_of_run(seen, people, await harness.record(run_id)))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_document_log_task_and_messages_are_told_apart(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await harness.plant("r", created(), claimed(), asked("ask#1"), awaited("g.1/s#1"), lie={"queue": "x"})
        bodies = {
            "answer": b'{"question_id":"q/ask#1","answer":true}', "signal": b'{"name":"packed"}', "cancel": b"{}",
            "child_finished": b"[1]",
        }  # fmt: skip
        for name, body in bodies.items():
            await harness.store.send(Message(run, name, name, msgspec.Raw(body)))
        facts = await looked_at(harness, "r")
        assert (facts.stored and facts.stored.queue, facts.document.queue) == ("x", "default")
        assert facts.drift is not None and "queue" in facts.drift
        assert [event.type for event in facts.log or ()][-1] == "signal_waited"
        about = [(each.kind, each.about) for each in facts.messages]
        assert about == [("answer", "q/ask#1"), ("signal", "packed"), ("cancel", ""), ("child_finished", "")]
        assert facts.task is not None
        assert facts.task.state == "due"  # the messages have woken it
        assert facts.foreign is False

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_are_held_due_or_parked(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        runner = await harness.runner("w")
        await harness.plant("held", created(), claimed("w"), task=Held(runner))
        await harness.plant("due", created(), task=Released(due_at=1.0, now=1.0))
        await harness.plant("parked", created(), claimed(), asked("ask#1"))
        for name in ("held", "due", "parked"):
            facts = await looked_at(harness, name)
            assert facts.task is not None
            assert facts.task.state == name
        assert (await looked_at(harness, "held")).live_owner

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_definitions_are_present_absent_or_unneeded(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        stored = stored_form(SPEC)
        version = spec_hash(stored)
        await harness.store.define(version, stored)
        here = created(workflow="spec:s", version=version, input=msgspec.Raw(b'{"directory":"/"}'))
        await harness.plant("known", here, claimed())
        await harness.plant("moved", here, claimed(), e.VersionBound(version="gone"))
        await harness.plant("code", created(), claimed())
        known, moved, code = [await looked_at(harness, name) for name in ("known", "moved", "code")]
        assert (known.definition, known.steps) == ("present", ("a", "b", "c"))
        assert known.needs is not None
        assert known.needs["b"] == ("a",)
        assert (moved.definition, moved.initial_definition, moved.needs) == ("absent", "present", None)
        assert code.definition == "unneeded"

    play(tmp_path, test, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_is_followed_through_its_successors(tmp_path: Path, kind: str) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("parent", created(), claimed(), child("c#1"))
        assert (await looked_at(harness, "parent")).children == {"child-1": "absent"}
        over = (claimed(), e.WorkflowCompleted())
        for name in ["child-1", *(f"child-1.c{number}" for number in range(2, 9))]:
            await harness.plant(name, created(), *over, task=Released(due_at=None, now=0.0))
        last = await harness.plant("child-1.c9", created(), claimed(), asked("ask#1"))
        facts = await looked_at(harness, "parent")
        assert facts.children == {"child-1": "awaiting_input"}
        found = await children_of(harness.store, await harness.state("parent"))
        assert [each and each.document.run_id for each in found.values()] == [last]

    play(tmp_path, test, kind)


def test_a_child_in_trouble_is_told(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("parent", created(), claimed(), child("c#1"))
        await harness.plant("child-1", created(), task=Released(due_at=1.0, now=1.0))
        facts = await looked_at(harness, "parent")
        assert "no worker is alive" in facts.child_troubles[RunId("child-1")]

    play(tmp_path, test)


class Moving:
    """A store in which something happens between two reads."""

    def __init__(self, store: Store, before_run: Any) -> None:
        self._store = store
        self._before_run = before_run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, run_id: RunId) -> Any:
        await self._before_run()
        return await self._store.run(run_id)


def test_a_run_that_goes_on_while_it_is_looked_at_does_not_look_damaged(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await harness.plant("r", created(), claimed(), asked("ask#1"))
        happened = False

        async def answer() -> None:
            nonlocal happened
            if happened:
                return
            happened = True
            runner = await harness.runner("late")
            log = await harness.log(run)
            bodies = (claimed("late"), answered("ask#1"), started("a#1"), completed("a#1"))
            await harness.store.commit([next_write(run, log, bodies, Held(runner))])

        facts = await looked_at(harness, "r", Moving(harness.store, answer))  # type: ignore[arg-type]
        assert (facts.drift, len(facts.log or ())) == (None, 7)
        assert facts.holder is not None
        assert facts.holder.registered

    play(tmp_path, test)


def test_a_run_that_moves_at_every_look_does_not_look_damaged(tmp_path: Path) -> None:
    async def test(harness: RecoveryHarness) -> None:
        run = await harness.plant("r", created(), claimed())
        left = 8

        async def append_commit() -> None:
            nonlocal left
            left -= 1
            if left > 0:
                log = await harness.log(run)
                await harness.store.commit([next_write(run, log, (started(f"a#{len(log)}"),), None)])

        facts = await looked_at(harness, "r", Moving(harness.store, append_commit))  # type: ignore[arg-type]
        assert (left, facts.drift) == (0, None)

    play(tmp_path, test)


def next_write(run: RunId, log: list[e.Event], bodies: tuple[e.Body, ...], task: Any) -> Any:
    seq = len(log)
    events = tuple(e.Event(seq + place, log[-1].at, body) for place, body in enumerate(bodies, 1))
    return Write(run, seq, events, document(fold(run, [*log, *events])), task)


@pytest.mark.parametrize("call", ["events", "inbox", "definition", "run"])
def test_a_read_that_fails_raises_and_is_no_absence(tmp_path: Path, call: str) -> None:
    async def fails(*given: object, **more: object) -> None:
        raise Unavailable("no answer")

    async def nothing() -> None: ...

    async def test(harness: RecoveryHarness) -> None:
        await harness.plant("r", created(workflow="spec:s", version="v"), claimed(), child("c#1"))
        people = await read_fleet(harness.store, harness.deaths)
        record = await harness.record("r")
        broken = Moving(harness.store, nothing)
        setattr(broken, call, fails)
        with pytest.raises(Unavailable):
            await facts_of_run(broken, people, record)  # type: ignore[arg-type]

    play(tmp_path, test)
