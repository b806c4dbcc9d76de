"""Graphs: an order of steps, a cycle in words, and what depends on what.

Invariants: everything is linear in steps and edges and uses no recursion; descendants are found by set, never by path,
since a graph of forty diamonds has a trillion paths.
Nodes are numbers from 0 on; `needs[n]` has the nodes that must come before `n`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence


def dependents(needs: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each node those that need it, in order."""
    found: list[list[int]] = [[] for _ in needs]
    for node, before in enumerate(needs):
        for each in before:
            found[each].append(node)
    return found


def topological(needs: Sequence[Sequence[int]], after: Sequence[Sequence[int]] | None = None) -> list[int] | None:
    """An order in which each node comes after what it needs, the lowest number first; None if there is a cycle.

    `after`: the dependents of each node, if the caller has them.
    """
    after = dependents(needs) if after is None else after
    left = [len(before) for before in needs]
    ready = [node for node, count in enumerate(left) if not count]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for each in after[node]:
            left[each] -= 1
            if not left[each]:
                heapq.heappush(ready, each)
    return order if len(order) == len(needs) else None


def cycle(needs: Sequence[Sequence[int]]) -> list[int]:
    """One cycle, as nodes of which each needs the next and the last needs the first; empty if there is none."""
    state = bytearray(len(needs))  # 0 new, 1 on the current path, 2 done
    for start in range(len(needs)):
        path: list[int] = []
        stack = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                state[node] = 2
                path.pop()
            elif state[node] == 1:
                return path[path.index(node) :]
            elif state[node] == 0:
                state[node] = 1
                path.append(node)
                stack.append((node, True))
                stack.extend((each, False) for each in needs[node] if state[each] != 2)
    return []


def cycle_text(ids: Sequence[str]) -> str:
    """A cycle in words."""
    shown = list(ids) if len(ids) <= 10 else [*ids[:5], f"... {len(ids) - 6} more ...", ids[-1]]
    return f"a cycle: {' needs '.join([*shown, ids[0]])}; nothing of it could ever start"


def descendants(after: Sequence[Sequence[int]], roots: Iterable[int]) -> set[int]:
    """All nodes that need one of the roots, directly or not; the roots themselves are not among them."""
    found: set[int] = set()
    stack = list(roots)
    while stack:
        for each in after[stack.pop()]:
            if each not in found:
                found.add(each)
                stack.append(each)
    return found
