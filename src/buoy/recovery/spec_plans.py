"""Spec plans, as evidence needs them. Planning a large spec takes seconds, and every look asks for it.

Invariants: a graph is planned in a thread, and kept under the hash of its definition and its parameters: the same ones
give the same graph, whatever store and run they belong to. What is kept is bounded by steps, not by graphs.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import blake2b

import msgspec

from buoy.core.limits import SPEC_STEPS_MAX
from buoy.engine.spec.workflow import stored_workflow
from buoy.errors import BadInput, CorruptLog, NotJson, TooLarge

# Two graphs of the largest size, or very many small ones.
STEPS_KEPT = 2 * SPEC_STEPS_MAX
GRAPHS_KEPT = 256


class Graph(msgspec.Struct, frozen=True):
    """`needs`: the steps of a spec, and what each needs; `calls`: the modules whose functions it calls."""

    needs: dict[str, tuple[str, ...]]
    calls: tuple[str, ...]


class Graphs:
    """Plans specs, each once."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, bytes], Graph] = OrderedDict()
        self._steps = 0

    async def of(self, version: str, data: bytes, given: msgspec.Raw) -> Graph | None:
        """The graph of a stored definition with these parameters; None if it cannot be read."""
        key = (version, blake2b(bytes(given), digest_size=16).digest())
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        found = await asyncio.to_thread(graph_of, version, data, given)
        # A plan that cannot be read is not kept: a person may repair its definition.
        if found is not None and key not in self._known:
            self._known[key] = found
            self._steps += len(found.needs)
        while self._steps > STEPS_KEPT or len(self._known) > GRAPHS_KEPT:
            self._steps -= len(self._known.popitem(last=False)[1].needs)
        return found


def graph_of(version: str, data: bytes, given: msgspec.Raw) -> Graph | None:
    try:
        workflow = stored_workflow(data, version)
        plan = workflow.plan(given)
    except (CorruptLog, BadInput, NotJson, TooLarge):
        return None
    needs = {
        step.id: tuple(plan.steps[each].id for each in needed)
        for step, needed in zip(plan.steps, plan.needs, strict=True)
    }
    return Graph(needs, tuple(sorted({target.partition(":")[0] for target in workflow.spec.calls()})))


# One for the process: what it keeps depends on nothing but content.
GRAPHS = Graphs()
