"""A process that commits for ever and says on its standard output what was answered. Killed by the tests.

usage: python committer.py DB RUN [COMMITS]: single commits and batches in turn, each line `run seq nonce`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import State
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.ports.records import Committed, Message, Write
from buoy.stores.sqlite.store import SqliteStore

IDS = SystemIds()


class Run:
    """One run and what was committed of it."""

    def __init__(self, name: str) -> None:
        self.state = State(run_id=RunId(name))

    def next(self) -> Write:
        after = self.state.head_seq
        if not after:
            body: e.Body = e.WorkflowCreated(workflow="order", input=msgspec.Raw(b"[]"))
        else:
            body = e.StepStarted(leaf=LeafId(f"s#{after}"), name="s", args=msgspec.Raw(b'"%s"' % (b"x" * 300)))
        first = e.Event(seq=after + 1, at=1.0, body=body, nonce=IDS.nonce())
        second = e.Event(seq=after + 2, at=1.0, body=e.Claimed(runner="r", cause="created"))
        for event in (first, second):
            self.state.apply(event)
        return Write(self.state.run_id, after, (first, second), document(self.state))


async def main(path: Path, name: str, commits: int) -> None:
    store = await SqliteStore.open(path, clock=SystemClock())
    runs = [Run(f"{name}-{number}") for number in range(5)]
    for number in range(commits):
        writes = [run.next() for run in (runs if number % 3 == 0 else runs[:1])]
        outcomes = await store.commit(writes)
        for write, outcome in zip(writes, outcomes, strict=True):
            assert outcome == Committed(write.after_seq + 2), outcome
            print(write.run_id, write.after_seq + 1, write.events[0].nonce, flush=True)
        if number % 4 == 0:
            receipt = await store.send(Message(runs[0].state.run_id, "signal", IDS.nonce(), msgspec.Raw(b"1")))
            print("message", runs[0].state.run_id, receipt.number, flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10**9))
