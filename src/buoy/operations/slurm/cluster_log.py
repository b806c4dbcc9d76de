"""The cluster log: what a batch run has at its cluster, read from its log and its inbox, and changed by message.

Invariants: a change is a numbered message. Of two writers that saw the same changes only one gets its number, by the
inbox's dedupe id. The other one plans again on what it finds. So no lock and no living owner is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from buoy.core.batch.allocations import ClusterEntry, ClusterState, read_message, recorded
from buoy.core.batch.jobs import LotFacts
from buoy.core.batch.lots import JobsMessage, ResetJobs
from buoy.core.ids import LeafId, RunId
from buoy.core.limits import INBOX_PAGE
from buoy.core.log import codec
from buoy.core.log import events as e
from buoy.core.log.cluster_changes import ChangeCluster, ClusterChange
from buoy.engine.client.client import Client
from buoy.errors import Unavailable
from buoy.operations.access import StoreAccess
from buoy.operations.batch.jobs import BatchLog, read_batch, read_lots
from buoy.ports.records import Message

KIND = "cluster"
_TRIES = 20


class ClusterView(msgspec.Struct, frozen=True):
    """A batch run with what it has at its cluster. `resets`: jobs that a message lets run again, not read so far.

    `recoveries`: how often a watch has reset jobs by itself since a person last did.
    """

    batch: BatchLog
    cluster: ClusterState
    lots: dict[int, LotFacts]
    resets: dict[LeafId, e.JobLimits]
    recoveries: int

    @property
    def losses(self) -> Counter[LeafId]:
        """How often each job was reset because it was lost with its allocation."""
        resets = [event.body for event in self.batch.log if isinstance(event.body, e.JobsReset)]
        return Counter(leaf for body in resets if body.recovery == "loss" for leaf in body.leaves)


class _Waiting(msgspec.Struct):
    """What the inbox of a run has about its cluster and its jobs, and what its log has not consumed.

    `resets_by`: who decided each reset.
    """

    entries: list[ClusterEntry]
    resets: dict[LeafId, e.JobLimits]
    resets_by: list[e.ResetBy]


Plan = Callable[[ClusterView], Sequence[ClusterChange]]


async def read_view(access: StoreAccess, run_id: RunId) -> ClusterView:
    """The run and its allocations, those included that its owner has not read yet."""
    batch = await read_batch(access, run_id)
    waiting = await _waiting(access, batch)
    cluster = ClusterState([*recorded(batch.log), *waiting.entries], batch.plan.spec.actions)
    resets = [event.body.recovery for event in batch.log if isinstance(event.body, e.JobsReset)]
    count = recoveries([*resets, *waiting.resets_by])
    return ClusterView(batch, cluster, await read_lots(access, batch.state), waiting.resets, count)


def recoveries(resets: Sequence[e.ResetBy]) -> int:
    """How many resets of a watch came after the last one of a person."""
    last = next((number for number, each in enumerate(reversed(resets)) if each == "person"), len(resets))
    return resets[len(resets) - last :].count("watch")


async def read_cluster(access: StoreAccess, batch: BatchLog) -> ClusterState:
    """What the log has, then what waits in the inbox."""
    entries = [*recorded(batch.log), *(await _waiting(access, batch)).entries]
    return ClusterState(entries, batch.plan.spec.actions)


async def _waiting(access: StoreAccess, batch: BatchLog) -> _Waiting:
    found = _Waiting([], {}, [])
    consumed, run_id = batch.state.consumed, batch.document.run_id
    after = 0
    while after + 1 in consumed:
        after += 1
    while page := await access.store.inbox(run_id, after, INBOX_PAGE):
        for message in page:
            if message.number not in consumed:
                _note(found, message)
        after = page[-1].number
    return found


def _note(found: _Waiting, message: Message) -> None:
    if message.kind == KIND:
        body = read_message(message.body)
        found.entries.append(ClusterEntry(body.number, float(message.sent_at), message.by, body.changes))
    elif message.kind == "jobs":
        reset = codec.decode(message.body, JobsMessage, "a message about jobs")
        if isinstance(reset, ResetJobs):
            found.resets |= {leaf: reset.limits.get(leaf, e.JobLimits()) for leaf in reset.leaves}
            found.resets_by.append(reset.recovery)


def run_age_s(access: StoreAccess, batch: BatchLog) -> float:
    """For how long a run has been there: none of its allocations is older."""
    return max(0.0, access.clock.now() - batch.document.created_at)


async def change_cluster(
    client: Client, run_id: RunId, plan: Plan, known: ClusterView | None = None
) -> tuple[ClusterView, tuple[ClusterChange, ...]]:
    """Records what the plan says on what is there now; the plan may be asked several times.

    `known`: what the caller has just read. The view is that on which the recorded plan was made.
    """
    for _ in range(_TRIES):
        view, known = known or await read_view(client, run_id), None
        changes = tuple(plan(view))
        if not changes:
            return view, ()
        # A message that was sent again after a lost answer is a duplicate of itself.
        number = view.cluster.number + 1
        if await _send(client, run_id, number, changes) or await _stands(client, run_id, number, changes):
            return view, changes
    raise Unavailable(f"the allocations of run {run_id} change all the time: {_TRIES} tries; try again")


async def add_change(client: Client, run_id: RunId, change: ClusterChange, number: int) -> int:
    """Records a change that depends on no other. `number`: that of the last change which the caller knows.

    Its own number. If no other process has recorded anything since, the run is not read.
    """
    if await _send(client, run_id, number + 1, (change,)):
        return number + 1
    view, _ = await change_cluster(client, run_id, lambda view: [change])
    return view.cluster.number + 1


async def _send(client: Client, run_id: RunId, number: int, changes: tuple[ClusterChange, ...]) -> bool:
    """Whether this message has the number; False: some message had it before."""
    body = codec.encode(ChangeCluster(number, changes), "changes of a cluster")
    receipt = await client.store.send(Message(run_id, KIND, f"{KIND}:{number}", body, by=client.actor))
    return not receipt.duplicate


async def _stands(client: Client, run_id: RunId, number: int, changes: tuple[ClusterChange, ...]) -> bool:
    batch = await read_batch(client, run_id)
    entries = [*recorded(batch.log), *(await _waiting(client, batch)).entries]
    return next((each.changes for each in entries if each.number == number), None) == changes
