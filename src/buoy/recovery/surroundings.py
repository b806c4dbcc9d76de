"""Surroundings: what a run's log refers to and does not hold: its definition, its children, its unread messages.

Invariant: a thing is absent only if the store said so; a read that fails raises.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from buoy.core.diagnosis.facts import MessageFacts, Presence
from buoy.core.ids import RunId, chain_of, successor_id
from buoy.core.log.state import State
from buoy.core.spec.model import is_spec
from buoy.core.times import StoreTime
from buoy.engine.run.mailbox import AnswerMessage, ChildEnd, Signal
from buoy.ports.records import Message, RunRecord
from buoy.ports.store import Store
from buoy.recovery.spec_plans import GRAPHS

CHILDREN_MAX = 50
_BODIES: dict[str, type[AnswerMessage | Signal | ChildEnd]] = {
    "answer": AnswerMessage,
    "signal": Signal,
    "child_finished": ChildEnd,
}


class DefinitionsRead(msgspec.Struct, frozen=True):
    """Whether the definitions that a run names are stored; `needs`: the steps of its spec, and what each needs."""

    current: Presence = "unneeded"
    initial: Presence = "unneeded"
    needs: dict[str, tuple[str, ...]] | None = None
    calls: tuple[str, ...] = ()


async def definitions_of(store: Store, state: State) -> DefinitionsRead:
    """Definitions of runs of specs; code needs none."""
    created = state.created
    if created is None or not is_spec(created.workflow):
        return DefinitionsRead()
    data = await store.definition(state.version) if state.version else None
    initial: Presence = "absent"
    if created.version:
        first = data if created.version == state.version else await store.definition(created.version)
        initial = "absent" if first is None else "present"
    if data is None:
        return DefinitionsRead("absent", initial)
    graph = await GRAPHS.of(state.version, data, created.input)
    found = DefinitionsRead("present", initial)
    # Without the graph if it cannot be read: the runner that drives the run reports that.
    return found if graph is None else msgspec.structs.replace(found, needs=graph.needs, calls=graph.calls)


def unread_messages(
    inbox: list[Message], state: State, as_run_time: Callable[[StoreTime], float]
) -> tuple[MessageFacts, ...]:
    """What the log has not consumed; of twins, only the first counts. `as_run_time`: the store's time as the run's."""
    consumed = {each.dedupe for each in inbox if each.number in state.consumed}
    found: dict[str, MessageFacts] = {}
    for each in inbox:
        if each.number not in state.consumed and each.dedupe not in consumed:
            found.setdefault(
                each.dedupe, MessageFacts(each.number, each.kind, _about(each), as_run_time(each.sent_at), each.by)
            )
    return tuple(found.values())


def _about(message: Message) -> str:
    """The signal's name, the question's id or the child's id."""
    kind = _BODIES.get(message.kind)
    if kind is None:
        return ""
    try:
        body = msgspec.json.decode(message.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    match body:
        case AnswerMessage():
            return body.question_id
        case Signal():
            return body.name
        case ChildEnd():
            return body.child


async def children_of(store: Store, state: State) -> dict[RunId, RunRecord | None]:
    """The runs that open leaves wait for, as they stand now; None: there is no such run."""
    waited = [leaf.child.child for leaf in state.open.values() if leaf.child is not None]
    return {child: await _last_of_chain(store, child) for child in waited[:CHILDREN_MAX]}


async def _last_of_chain(store: Store, child: RunId) -> RunRecord | None:
    """A child may have handed over to successors: it has ended only when the last of them has.

    Their ids are numbered, so the last is found by doubling and halving.
    """
    record = await store.run(child)
    if record is None or not record.document.ended:
        return record
    root, low = chain_of(child)
    step = 1
    while (found := await store.run(_link(root, low + step))) is not None:
        record, low, step = found, low + step, step * 2
    while step > 1:
        step //= 2
        found = await store.run(_link(root, low + step))
        if found is not None:
            record, low = found, low + step
    return record


def _link(root: RunId, number: int) -> RunId:
    return successor_id(RunId(f"{root}.c{number - 1}")) if number > 2 else successor_id(root)
