"""Replays: the final log of a run, replayed from its beginning by a process that knows nothing, gives the same end.

Cut before its ending, the log must lead the code to exactly that ending; cut anywhere, it must not diverge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any, cast

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.lifecycle import TERMINAL
from buoy.core.log.state import fold
from buoy.engine.authoring.definitions import Registry, Workflow
from buoy.engine.process.runner import Runner
from buoy.engine.process.runner_options import RunnerOptions
from buoy.engine.run.execution import Execution
from buoy.engine.services.journal import Done, Journal
from buoy.ports.records import RunnerInfo, Write
from buoy.ports.store import Store
from simulator.evidence import text_of
from simulator.host import SimClock, SimIds
from simulator.kernel import Kernel
from simulator.specs import CALLS


class _Papers:
    """A journal that keeps what it is given and answers nothing: no effect ever begins."""

    away = False

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def submit(self, write: Write, done: Done) -> None:
        self.writes.append(write)


def _reader(kernel: Kernel) -> Runner:
    """A runner that was never started: it only reads."""
    info = RunnerInfo(RunnerId("reader"), "host", "boot", "ns", 1, "1", "reader", queues=())
    clock, ids = SimClock(kernel), SimIds("reader")
    options = RunnerOptions(calls=CALLS)
    reader = Runner(cast(Store, None), Registry(), info, clock=clock, ids=ids, threads=None, options=options)
    reader.journal = cast(Journal, _Papers())
    return reader


def replay_differences(
    run_id: str, log: list[e.Event], workflow: Workflow[..., Any], rng: Random, kernel: Kernel
) -> Iterator[str]:
    """What is different when the log is replayed: whole, and up to some commit in the middle."""
    state = fold(RunId(run_id), log)
    cuts = [event.seq - 1 for event in log if event.nonce is not None and event.seq > 1]
    if cuts:
        cut = rng.choice(cuts)
        for body in _replayed(run_id, log[:cut], workflow, kernel):
            if isinstance(body, e.Paused):
                yield f"replayed up to event {cut} it diverges: {body.detail}"
    if state.status not in TERMINAL or _ended_by_others(log):
        return
    if [event.seq for event in log] != list(range(1, len(log) + 1)):
        yield "its log has gaps"
        return
    ending = log[state.ending_seq - 1].body
    bodies = _replayed(run_id, log[: state.ending_seq - 1], workflow, kernel)
    if not any(_same_ending(body, ending) for body in bodies):
        yield f"replayed it does not end with {text_of(ending)}, but with {text_of(bodies)}"


def _ended_by_others(log: list[e.Event]) -> bool:
    """Cancelled by its sender, or failed after a death, as its policy is: neither needed its code."""
    for body in (one.body for one in log[-3:]):
        if isinstance(body, e.Claimed) and body.cause == "requested":
            return True
        if isinstance(body, e.WorkflowFailed) and body.error.type == "RecoveryRefused":
            return True
    return False


def _same_ending(body: e.Body, ending: e.Body) -> bool:
    if isinstance(body, e.WorkflowFailed) and isinstance(ending, e.WorkflowFailed):
        # Tracebacks have other line numbers when the code is replayed.
        return (body.error.type, body.error.message) == (ending.error.type, ending.error.message)
    return body == ending


def _replayed(run_id: str, log: list[e.Event], workflow: Workflow[..., Any], kernel: Kernel) -> list[e.Body]:
    """The events that a takeover would record, up to the first commit."""
    reader = _reader(kernel)
    papers = cast(_Papers, reader.journal)
    execution = Execution(reader, workflow, RunId(run_id), log)
    if execution.ended:
        return []
    loop = kernel.make_loop("replay", _ignore)
    asyncio._set_running_loop(loop)
    try:
        turn = execution.resume(e.Claimed(runner="reader", cause="woken"), [])
        for _ in range(10_000):
            try:
                turn.send(None)
            except StopIteration:
                break
    finally:
        asyncio._set_running_loop(None)
        loop.kill()
    found = [event.body for write in papers.writes for event in write.events]
    execution.detach()
    return found


def _ignore(text: str) -> None:
    """What goes wrong in a dropped replay is no finding."""
