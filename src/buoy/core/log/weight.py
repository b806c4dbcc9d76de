"""Weight: about how many bytes a commit is, without encoding it.

Invariant: what can be large is counted: payloads, questions, and the leaves that a branch names. The rest is some 300
bytes for each event and document. Exact sizes are the store's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from buoy.core.limits import PUBLISHED_EVENT_BYTES, PUBLISHED_ITEM_BYTES
from buoy.core.log import events as e
from buoy.core.log.document import Document

_EVENT_BYTES = 300
_LEAF_BYTES = 64
_CHANGE_BYTES = 200


def item_bytes(item: e.PublishedItem) -> int:
    """Bytes that a published value takes in a log."""
    return memoryview(item.value).nbytes + len(item.channel) + len(item.step) + PUBLISHED_ITEM_BYTES


def published_bytes(body: e.Published) -> int:
    """Bytes that a group of published values takes in a log."""
    return PUBLISHED_EVENT_BYTES + sum(item_bytes(item) for item in body.items)


# Written out for each body, because every commit calls it.
LARGE: dict[type[e.Payload], Callable[[Any], int]] = {
    e.WorkflowCreated: lambda body: memoryview(body.input).nbytes,
    e.StepStarted: lambda body: memoryview(body.args).nbytes,
    e.StepCompleted: lambda body: memoryview(body.result).nbytes,
    e.ModuleStarted: lambda body: memoryview(body.args).nbytes,
    e.ModuleCompleted: lambda body: memoryview(body.result).nbytes,
    e.InteractionRequested: lambda body: len(msgspec.json.encode(body.question)),
    e.InteractionResponse: lambda body: memoryview(body.answer).nbytes,
    e.SignalReceived: lambda body: memoryview(body.payload).nbytes,
    e.ChildStarted: lambda body: memoryview(body.input).nbytes,
    e.ChildFinished: lambda body: memoryview(body.result).nbytes,
    e.WorkflowCompleted: lambda body: memoryview(body.result).nbytes + memoryview(body.next_input).nbytes,
    e.Published: published_bytes,
    e.JobsReset: lambda body: _LEAF_BYTES * (len(body.leaves) + len(body.limits)),
    e.JobsStopped: lambda body: _LEAF_BYTES * len(body.leaves),
    e.ClusterChanged: lambda body: _CHANGE_BYTES * len(body.changes),
    e.BranchCreated: lambda body: _LEAF_BYTES * (len(body.kept) + len(body.dropped)),
}


def weight(events: Sequence[e.Event], document: Document) -> int:
    """About the bytes of one commit."""
    found = _EVENT_BYTES * (len(events) + 1)
    for event in events:
        body = event.body
        weigh = LARGE.get(type(body))
        if weigh is not None:
            found += weigh(body)
    for leaf in document.open:
        if leaf.question is not None:
            found += len(msgspec.json.encode(leaf.question))
    return found
