"""Rewind hold: pauses a run that a live worker drives, while another process plans its rewind.

Invariants: no job is offered again while a live runner may have it. The hold ends by itself. The worker records the
pause with an end time, so a client that dies in between leaves no run paused. A client that gives up takes back its own
pause and no other, even one that the worker has not read yet: messages are read in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from buoy.core.batch.lots import lot_leaf
from buoy.core.ids import LeafId, RunId
from buoy.core.limits import REWIND_HOLD_S
from buoy.core.log.events import ChildStarted
from buoy.core.log.leaf import Leaf
from buoy.core.log.state import State, fold
from buoy.engine.client.requests import driven
from buoy.engine.read_log import read_log
from buoy.engine.run.mailbox import Reason
from buoy.errors import Problem, WrongState

if TYPE_CHECKING:
    from buoy.engine.client.client import Client

_WAIT_S = 15.0
_LOOK_S = 0.2
_NAMES_MAX = 5


async def until_jobs_left(client: Client, run_id: RunId, state: State, again: Sequence[LeafId]) -> None:
    """Waits until no live runner has a lot of a batch run with a job that runs again. Refuses if one keeps it.

    A cancelled run has ended while its jobs still use their grace, and a paused one while they run.
    """
    jobs = [leaf for name in again if (leaf := state.leaves.get(name)) is not None and leaf.kind == "job"]
    lots = {leaf.id: child.child for leaf in jobs if (child := _lot_of(state, leaf)) is not None}
    deadline = client.clock.monotonic() + _WAIT_S
    while lots:
        held = {run: record for run in set(lots.values()) if (record := await client.store.run(run)) is not None}
        lots = {leaf: run for leaf, run in lots.items() if run in held and await driven(client, held[run])}
        if lots and client.clock.monotonic() >= deadline:
            names = ", ".join(sorted(leaf.partition("#")[0] for leaf in lots)[:_NAMES_MAX])
            raise WrongState(
                f"a runner still has jobs of run {run_id} that would run again ({names}); nothing was changed: try "
                "again when they have ended, or cancel them first"
            )
        if lots:
            await client.store.wait_for_change(_LOOK_S)


def _lot_of(state: State, job: Leaf) -> ChildStarted | None:
    """The lot of a job whose end was not reported."""
    lot = state.leaves.get(lot_leaf(job.lot)) if job.lot and job.phase == "open" else None
    return None if lot is None else lot.child


class RewindHold:
    """One client's hold on one run."""

    def __init__(self, client: Client, run_id: RunId) -> None:
        self._client = client
        self._run_id = run_id
        # Of the request to pause, in the run's inbox.
        self._message: int | None = None

    def is_ours(self, state: State) -> bool:
        """Whether the run is paused because of this hold."""
        return self._message is not None and state.pause is not None and state.pause.message == self._message

    def unread(self, state: State) -> int | None:
        """The request to pause, if the run has not read it yet."""
        return None if self._message in state.consumed else self._message

    async def take(self) -> None:
        """Asks the worker to pause the run, and waits until the worker has let go of it."""
        client, run_id = self._client, self._run_id
        state = fold(run_id, await read_log(client.store, run_id))
        if self.unread(state) is None and not self.is_ours(state):
            body = Reason("to go back to an earlier step", hold_s=REWIND_HOLD_S)
            self._message = (await client.request(run_id, "pause", body)).number
        deadline = client.clock.monotonic() + _WAIT_S
        while client.clock.monotonic() < deadline:
            record = await client.record(run_id)
            if record.document.ended or not await driven(client, record):
                return
            await client.store.wait_for_change(_LOOK_S)
        raise WrongState(
            f"run {run_id} still executes a step, or its worker does not answer; nothing was changed: "
            "try again when the step has ended, or cancel the run first"
        )

    async def give_up(self, error: BaseException) -> None:
        """The run stays as it was: takes back the request to pause, if the run has not resumed by itself."""
        if self._message is None:
            return
        try:
            state = fold(self._run_id, await read_log(self._client.store, self._run_id))
            if self.is_ours(state) or self.unread(state) is not None:
                body = Reason("the request to go back was given up", takes_back=self._message)
                await self._client.request(self._run_id, "resume", body)
        except Problem as problem:
            error.add_note(f"the run resumes by itself within {REWIND_HOLD_S:g} s of being paused ({problem})")
