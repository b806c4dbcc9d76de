"""Bundles that were made by chance: whatever comes in comes out the same; whatever is damaged is refused in words."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from buoy.core.bundle.checks import check
from buoy.core.bundle.format import Bundle, BundleMessage, parse, render, without_hold
from buoy.core.ids import BranchId, LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.questions import Question
from buoy.engine.authoring.definitions import Registry
from buoy.engine.client.client import Client
from buoy.errors import BadInput, UserError
from buoy.host.ids import SystemIds
from buoy.operations.maintenance.bundles import export_run, import_run
from buoy.ports.host import Clock
from buoy.stores.objects.buckets.memory import MemoryBucket, MemoryData
from buoy.stores.objects.store import ObjectStore
from buoy.testing.clock import ManualClock

RUN = RunId("run-1")
MESSAGES = 4
LEAVES = st.sampled_from([LeafId("a#1"), LeafId("b#1"), LeafId("1/a#1"), LeafId("1.2/ask#1")])
NUMBERS = st.one_of(st.none(), st.integers(1, MESSAGES))
VALUES = st.sampled_from([msgspec.Raw(text) for text in (b"null", b"1", b'{"a": [1, 2]}', b'"\xc3\xa9"', b" [ ] ")])
ERROR = e.ErrorInfo(type="E", message="no")
BODIES = st.one_of(
    st.builds(lambda runner: e.Claimed(runner=runner, cause="woken"), st.sampled_from(["r1", "r2"])),
    st.builds(lambda leaf, args: e.StepStarted(leaf=leaf, name="a", args=args), LEAVES, VALUES),
    st.builds(lambda leaf, found, n: e.StepCompleted(leaf=leaf, result=found, message=n), LEAVES, VALUES, NUMBERS),
    st.builds(lambda leaf: e.StepFailed(leaf=leaf, error=ERROR), LEAVES),
    st.builds(lambda leaf: e.RetryScheduled(leaf=leaf, attempt=1, due_at=5e8, error=ERROR), LEAVES),
    st.builds(
        lambda leaf: e.InteractionRequested(leaf=leaf, question_id="q", question=Question(title="Yes?")), LEAVES
    ),
    st.builds(
        lambda leaf, n: e.InteractionResponse(leaf=leaf, question_id="q", answer=e.NULL, message=n), LEAVES, NUMBERS
    ),
    st.builds(lambda leaf: e.SignalWaited(leaf=leaf, name="go", due_at=7.5), LEAVES),
    st.builds(lambda leaf, n: e.SignalReceived(leaf=leaf, message=n), LEAVES, NUMBERS),
    st.builds(lambda leaf: e.TimerStarted(leaf=leaf, due_at=1e9), LEAVES),
    st.builds(lambda leaf: e.CompensationStarted(leaf=leaf), LEAVES),
    st.builds(lambda reason: e.Paused(reason=reason), st.sampled_from(["user", "version", "hold"])),
    st.just(e.Resumed()),
    st.just(e.Interrupted(signal="SIGTERM", runner="r1")),
    st.just(e.CancelRequested(reason="enough")),
    st.just(e.WorkflowCompleted()),
    st.just(e.WorkflowFailed(error=ERROR)),
    st.builds(
        lambda cutoff: e.BranchCreated(branch=BranchId(-1), parent=BranchId(0), cutoff_seq=cutoff), st.integers(0, 9)
    ),
)  # fmt: skip


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    """Any log at all that a store could keep, mostly one that no Buoy writes."""
    log = [e.Event(1, 1000.0, e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"{}")), nonce="n1")]
    branch = 0
    for seq, body in enumerate(draw(st.lists(BODIES, max_size=14)), 2):
        if isinstance(body, e.BranchCreated):
            parent, branch = branch, branch + 1
            body = msgspec.structs.replace(
                body, branch=BranchId(branch), parent=BranchId(parent), cutoff_seq=min(body.cutoff_seq, seq - 1)
            )
        nonce = draw(st.sampled_from([None, f"n{seq}"]))
        log.append(e.Event(seq, 1000.0 + seq / 3, body, BranchId(branch), nonce=nonce))
    inbox = tuple(
        BundleMessage(number, "signal", f"d{number}", msgspec.Raw(b'{"name": "go"}'), 0.1 * number, "ann")
        for number in range(1, MESSAGES + 1)
    )
    return Bundle(run_id=RUN, log=tuple(log), inbox=inbox)


async def fresh_client(clock: Clock) -> Client:
    store = await ObjectStore.on(MemoryBucket(MemoryData()), clock=clock)
    unproven: Any = None
    return Client(store, Registry(), clock=clock, ids=SystemIds(), liveness=unproven, actor="ann")


@settings(max_examples=150, deadline=None)
@given(bundles())
def test_whatever_comes_in_comes_out_byte_by_byte(bundle: Bundle) -> None:
    async def play() -> None:
        clock = ManualClock(2_000.0)
        here, there = await fresh_client(clock), await fresh_client(clock)
        done = await import_run(here, parse(render(bundle)), quarantine=True)
        assert done.status in ("paused", "completed", "failed", "cancelled")
        first = render(await export_run(here, RUN))
        assert parse(first).log == without_hold(parse(render(bundle)).log)
        clock.advance(5.0)
        await import_run(there, parse(first), quarantine=True)
        assert render(await export_run(there, RUN)) == first
        assert not (await import_run(there, parse(first), quarantine=True)).new

    asyncio.run(play())


def _sound() -> bytes:
    log = [
        e.Event(1, 1000.0, e.WorkflowCreated(workflow="order", input=msgspec.Raw(b'{"n": 1}')), nonce="a"),
        e.Event(2, 1001.0, e.Claimed(runner="r", cause="created"), nonce="b"),
        e.Event(3, 1002.0, e.StepStarted(leaf=LeafId("a#1"), name="a")),
        e.Event(4, 1003.0, e.RetryScheduled(leaf=LeafId("a#1"), attempt=1, due_at=1e9, error=ERROR)),
        e.Event(
            5, 1004.0, e.BranchCreated(branch=BranchId(1), parent=BranchId(0), cutoff_seq=2, kept=(LeafId("x#1"),))
        ),
        e.Event(6, 1005.0, e.SignalWaited(leaf=LeafId("s#1"), name="go", due_at=1e9), BranchId(1)),
        e.Event(7, 1006.0, e.SignalReceived(leaf=LeafId("s#1"), message=1), BranchId(1)),
    ]
    inbox = (BundleMessage(1, "signal", "d1", msgspec.Raw(b'{"name": "go"}'), 1.0),)
    return render(Bundle(run_id=RUN, log=tuple(log), inbox=inbox))


ODD = [
    None,
    -1,
    0,
    1,
    2**63,
    2**70,
    -(2**70),
    1e308,
    "",
    "x",
    "\x00",
    "é" * 3000,
    [],
    {},
    [[]],
    {"type": "claimed"},
    True,
]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        found += _places(each, (*path, key))
    return found


def _replace(whole: Any, path: tuple[Any, ...], new: object, *, remove: bool) -> None:
    for step in path[:-1]:
        whole = whole[step]
    if remove:
        del whole[path[-1]]
    else:
        whole[path[-1]] = new


def test_every_value_replaced_by_every_odd_one_is_refused_or_kept_on_hold() -> None:
    sound = json.loads(_sound())
    for path in _places(sound):
        for new in (*ODD, ...):
            spoilt = json.loads(json.dumps(sound))
            _replace(spoilt, path, new, remove=new is ...)
            _survives(json.dumps(spoilt).encode())


def test_bytes_that_were_damaged_by_chance_are_refused_or_kept_on_hold() -> None:
    chance, sound = random.Random(7), _sound()
    for _ in range(4_000):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place : place + chance.randint(1, 40)]
                case _:
                    data[place:place] = data[: chance.randint(1, 40)]
        _survives(bytes(data))


def _survives(data: bytes) -> None:
    """Either a refusal in words, or a run that a store can keep and people can look at."""
    try:
        bundle = parse(data)
    except UserError:
        return
    found = check(bundle)
    if found.state is None:
        assert found.texts("wrong")
        return

    async def play() -> None:
        client = await fresh_client(ManualClock(2_000.0))
        try:
            done = await import_run(client, bundle, quarantine=True)
        except BadInput:
            assert (await client.runs()).runs == ()
            return
        assert done.held or done.status in ("paused", "completed", "failed", "cancelled")
        await export_run(client, bundle.run_id)

    asyncio.run(play())
