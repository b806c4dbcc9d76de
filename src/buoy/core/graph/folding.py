"""Folding: folds concurrent parts and calls that did the same into one, so that a fan-out of 200 fits on a screen.

Invariant: only parts that completed without a retry, a repetition or an error are folded; what went wrong, or is under
way, is always drawn by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from buoy.core.graph.view import Node

# Fewer parts than this are quicker read one by one.
ALIKE_MIN = 4

_Shape = tuple[tuple[str, str], ...]


def fold_alike(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, with one for each leaf of the parts that are alike. They are in the order of their start."""
    parts: dict[tuple[int, str], list[Node]] = {}
    for node in nodes:
        if node.scope:
            parts.setdefault((node.branch, node.scope), []).append(node)
    groups: dict[tuple[int, str, _Shape], list[list[Node]]] = {}
    for (branch, scope), members in parts.items():
        if all(_is_plain(node) for node in members):
            shape = tuple((node.kind, node.name) for node in members)
            groups.setdefault((branch, scope.rpartition(".")[0], shape), []).append(members)
    columns: list[Sequence[Node]] = []
    for group in groups.values():
        if len(group) >= ALIKE_MIN:
            columns.extend(zip(*group, strict=True))
    known = {id(node) for column in columns for node in column}
    columns.extend(_at_once([node for node in nodes if id(node) not in known]))
    folded = {id(column[0]): _one_for(column) for column in columns}
    dropped = {id(node) for column in columns for node in column[1:]}
    return [folded.get(id(node), node) for node in nodes if id(node) not in dropped]


def _at_once(nodes: Sequence[Node]) -> list[list[Node]]:
    """Calls of one step, or children of one workflow, that the same part made before the first of them had ended."""
    rows: dict[tuple[int, str, str, str], list[list[Node]]] = {}
    first_end: dict[tuple[int, str, str, str], int] = {}
    for node in nodes:
        if not _is_plain(node):
            continue
        call, ended = (node.branch, node.scope, node.kind, node.name), node.ended_seq or node.started_seq
        found = rows.setdefault(call, [])
        if not found or first_end[call] < node.started_seq:
            found.append([])
            first_end[call] = ended
        found[-1].append(node)
        first_end[call] = min(first_end[call], ended)
    return [row for found in rows.values() for row in found if len(row) >= ALIKE_MIN]


def _is_plain(node: Node) -> bool:
    return node.phase == "completed" and not (node.retries or node.repeats or node.hidden or node.error)


def _one_for(column: Sequence[Node]) -> Node:
    spans = [(node.ended_at or node.started_at) - node.started_at for node in column]
    return replace(
        column[0],
        alike=len(column),
        shortest_s=max(min(spans), 0.0),
        started_at=min(node.started_at for node in column),
        ended_at=max(node.ended_at or node.started_at for node in column),
        ended_seq=max(node.ended_seq or node.started_seq for node in column),
        longest_s=max(*spans, 0.0),
    )
