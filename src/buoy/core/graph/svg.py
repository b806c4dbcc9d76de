"""Graph SVG: a run's picture as a time line, drawn without any other program.

The axis is compressed: a step of milliseconds and a wait of months are in one picture. Lengths show the order, the
texts show the durations. Nothing in the file is loaded from elsewhere, and no text of the run can become markup.
"""

from __future__ import annotations

import math
from html import escape

from buoy.core.graph.text import details, label
from buoy.core.graph.view import GraphView, Node

_FILL = {
    "open": "#5b8fd9",
    "retrying": "#d9a521",
    "completed": "#4aa36c",
    "failed": "#c84040",
    "cancelled": "#a0a0a0",
}
_ROW, _LEFT, _BARS, _RIGHT, _TOP, _INDENT = 26, 280, 520, 360, 62, 14
_CAPTION = "Time runs from left to right. Widths are not to scale: the texts on the right give the durations."
_LABEL_CHARS_MAX = 38
_DETAIL_CHARS_MAX = 56


def as_svg(view: GraphView) -> str:
    """The whole file."""
    scale = _scale(view)
    height = _TOP + _ROW * len(view.nodes) + (30 if view.left_out else 12)
    width = _LEFT + _BARS + _RIGHT
    title = escape(_clean(f"{view.run_id} ({view.workflow}, {view.status})"))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="ui-sans-serif, system-ui, sans-serif" font-size="12" role="img" aria-label="{title}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="15" font-weight="600">{title}</text>',
        f'<text x="16" y="44" fill="#666666">{_CAPTION}</text>',
    ]
    parts += [_row(view, place, scale) for place in range(len(view.nodes))]
    parts += [_link(view, one, other, scale) for one, other in view.links]
    if view.left_out:
        parts.append(f'<text x="16" y="{height - 12}" fill="#666666">... and {view.left_out:,} more leaves</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _scale(view: GraphView) -> dict[float, float]:
    """Where each moment stands: gaps grow with the logarithm of their length."""
    moments = {node.started_at for node in view.nodes} | {_end(view, node) for node in view.nodes}
    ordered = sorted(moments)
    places, place = {}, 0.0
    for before, moment in zip([None, *ordered], ordered, strict=False):
        place += 0.0 if before is None else 1.0 + math.log1p(max(moment - before, 0.0) * 10)
        places[moment] = place
    whole = place or 1.0
    return {moment: _LEFT + found / whole * _BARS for moment, found in places.items()}


def _end(view: GraphView, node: Node) -> float:
    return node.started_at + view.duration_s(node)


def _span(view: GraphView, node: Node, scale: dict[float, float]) -> tuple[float, float]:
    begin = scale[node.started_at]
    return begin, max(scale[_end(view, node)], begin + 4.0)


def _row(view: GraphView, place: int, scale: dict[float, float]) -> str:
    node = view.nodes[place]
    top = _TOP + place * _ROW
    begin, end = _span(view, node, scale)
    indent = 16 + _INDENT * (node.scope.count(".") + 1 if node.scope else 0)
    shown = ", ".join(details(view, node))
    opacity = ' opacity="0.45"' if node.hidden else ""
    branch = f" [branch {node.branch}]" if node.branch else ""
    return (
        f"<g{opacity}><title>{escape(_clean(f'{node.leaf}: {shown}'))}</title>"
        f'<text x="{indent}" y="{top + 15}">{escape(_cut(label(node) + branch, _LABEL_CHARS_MAX))}</text>'
        f'<rect x="{begin:.1f}" y="{top + 4}" width="{end - begin:.1f}" height="14" rx="3" '
        f'fill="{_FILL[node.phase]}" stroke="#555555" stroke-width="0.5"/>'
        f'<text x="{_LEFT + _BARS + 12}" y="{top + 15}" fill="#555555">{escape(_cut(shown, _DETAIL_CHARS_MAX))}</text>'
        "</g>"
    )


def _link(view: GraphView, one: int, other: int, scale: dict[float, float]) -> str:
    begin = _span(view, view.nodes[one], scale)[1]
    end = _span(view, view.nodes[other], scale)[0]
    top, bottom = _TOP + one * _ROW + 18, _TOP + other * _ROW + 4
    return (
        f'<path d="M {begin:.1f} {top} C {begin:.1f} {bottom} {end:.1f} {top} {end:.1f} {bottom}" '
        'fill="none" stroke="#999999" stroke-width="0.8"/>'
    )


def _cut(text: str, most: int) -> str:
    clean = _clean(text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _clean(text: str) -> str:
    """XML has no place for control characters, however they are written."""
    return "".join(char if char.isprintable() else " " for char in text)
