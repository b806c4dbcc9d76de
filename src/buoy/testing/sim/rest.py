"""Rest: whether a run may stay as it is, and whether it has come to its end; asked of the whole world.

Invariant: only durable logs, inboxes and the plan are asked; what a process believes counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from buoy.core import events as e
from buoy.core.document import Document
from buoy.core.lifecycle import TERMINAL, Status
from buoy.core.lineage import visible
from buoy.testing.sim.invariants import restless, unread

if TYPE_CHECKING:
    from buoy.testing.sim.world import World


def unrest(world: World, run_id: str) -> Iterator[str]:
    """Why a run cannot stay as it is."""
    log, state = world.look(run_id)
    yield from restless(state, unread(log, world.inbox(run_id)))
    if state.status is None and run_id in world.foreign and adopters(world, world.foreign[run_id]):
        yield "another system wrote it, and a sweeper that takes such runs in leaves it alone"
    if state.pause is not None and state.pause.reason == "version":
        yield f"it waits for other code, which is there: {state.pause.detail}"
    for leaf in state.open.values():
        if leaf.child is None or state.status is Status.PAUSED:
            continue
        child = world.state(leaf.child.child).status
        if child is None or (child in TERMINAL and not _goes_on(world, leaf.child.child)):
            yield f"{leaf.id} waits for {leaf.child.child}, which is {child or 'not there'}"


def adopters(world: World, doc: Document) -> list[str]:
    """The sweepers that are asked to take this run in."""
    posts = (post for post in world.plan.posts if post.adopt and post.env == doc.env)
    return [post.name for post in posts if None in (post.stack, doc.stack) or post.stack == doc.stack]


def _goes_on(world: World, run_id: str) -> bool:
    """Whether a run ended only to go on as another one, which has not ended."""
    ends = [each.body for each in world.look(run_id)[0] if isinstance(each.body, e.WorkflowCompleted)]
    after = ends[-1].continued_as if ends else None
    return after is not None and (world.state(after).status not in TERMINAL or _goes_on(world, after))


def has_ended(world: World, run_id: str) -> bool:
    """Nothing of it is left, nor of what it promised to start."""
    log, state = world.look(run_id)
    promised: list[str] = []
    for body in (event.body for event in visible(log)):
        if isinstance(body, e.WorkflowCompleted) and body.continued_as is not None:
            promised.append(body.continued_as)
        elif isinstance(body, e.ChildStarted) and body.detach:
            promised.append(body.child)
    born = all(world.state(other).status is not None for other in promised)
    return born and (state.status is None or state.status in TERMINAL)
