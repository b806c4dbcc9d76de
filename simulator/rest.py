"""Rest: whether a run may stay as it is, and whether it has come to its end; asked of the whole world.

Invariant: only durable logs, inboxes and the plan are asked; what a process believes counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from buoy.core.log import events as e
from buoy.core.log.document import Document
from buoy.core.log.lifecycle import TERMINAL, Status
from simulator.invariants import restless
from simulator.mail import unread
from simulator.reading import parts_of, shown

if TYPE_CHECKING:
    from simulator.world import World


def unrest(world: World, run_id: str) -> Iterator[str]:
    """Why a run cannot stay as it is."""
    log, state = world.look(run_id)
    yield from restless(state, unread(log, world.inbox(run_id)))
    if state.status is None and run_id in world.foreign and adopters(world, world.foreign[run_id]):
        yield "another system wrote it, and a sweeper that takes such runs in leaves it alone"
    if state.pause is not None and state.pause.reason == "version":
        yield f"it waits for other code, which is there: {state.pause.detail}"
    parent = None if state.created is None else state.created.parent
    # One that had ended, and that a person brought back, is no longer its parent's.
    own = any(isinstance(event.body, e.ENDINGS) for event in log)
    # The end reached it, and then a person paused it: it stays so until a person resumes it.
    own = own or (state.pause is not None and state.cancel is not None)
    if parent is not None and not own and state.status is not None and gave_up(world, parent.run, run_id):
        yield f"its parent {parent.run} has given it up, and it lives on"
    for leaf in state.open.values():
        if leaf.child is None or state.status is Status.PAUSED:
            continue
        child = world.state(leaf.child.child).status
        if child is None or (child in TERMINAL and not _goes_on(world, leaf.child.child)):
            yield f"{leaf.id} waits for {leaf.child.child}, which is {child or 'not there'}"


def gave_up(world: World, parent: str, child: str) -> bool:
    """Whether a run ended without this child's end, or its code gave the child up. One that was hidden is no matter."""
    seen = shown(world.look(parent)[0])
    failed = any(isinstance(each.body, e.WorkflowFailed | e.WorkflowCancelled) for each in seen)
    for part in parts_of(seen).values():
        body = part.begun.body
        if isinstance(body, e.ChildStarted) and body.child == child and not body.detach:
            return part.outcome == "cancelled" or (failed and part.outcome == "open")
    return False


def adopters(world: World, doc: Document) -> list[str]:
    """The sweepers that are asked to take this run in."""
    posts = (post for post in world.plan.posts if post.adopt and post.env == doc.env)
    return [post.name for post in posts if None in (post.stack, doc.stack) or post.stack == doc.stack]


def _goes_on(world: World, run_id: str) -> bool:
    """Whether a run ended only to continue as another one, which has not ended."""
    ends = [each.body for each in world.look(run_id)[0] if isinstance(each.body, e.WorkflowCompleted)]
    after = ends[-1].continued_as if ends else None
    return after is not None and (world.state(after).status not in TERMINAL or _goes_on(world, after))


def has_ended(world: World, run_id: str) -> bool:
    """Nothing of it is left, nor of what it promised to start."""
    state = world.state(run_id)
    return not unborn(world, run_id) and (state.status is None or state.status in TERMINAL)


def unborn(world: World, run_id: str) -> list[str]:
    """The runs that a run promised to start, and that are not there."""
    promised: list[str] = []
    for body in (event.body for event in shown(world.look(run_id)[0])):
        if isinstance(body, e.WorkflowCompleted) and body.continued_as is not None:
            promised.append(body.continued_as)
        elif isinstance(body, e.ChildStarted) and body.detach:
            promised.append(body.child)
    return [other for other in promised if world.state(other).status is None]
