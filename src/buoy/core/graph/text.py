"""Graph text: a run's picture as lines for a terminal, and as a Mermaid flow chart for a page."""

from __future__ import annotations

from collections.abc import Iterator

from buoy.core.durations import in_words
from buoy.core.graph.view import GraphView, Node
from buoy.core.log.wording import counted

MARKS = {
    "open": "▶",
    "retrying": "↻",
    "completed": "✓",
    "failed": "✗",
    "cancelled": "⊘",
}
_NAME_CHARS_MAX = 60


def as_text(view: GraphView) -> str:
    """One line for each leaf, in order of their start; concurrent parts are indented under their number."""
    lines = [f"{view.run_id}  {view.workflow}  {view.status}"]
    rows = [(node, "  " * (1 + _depth(node)) + f"{MARKS[node.phase]} {label(node)}") for node in view.nodes]
    width = max((len(text) for _, text in rows), default=0)
    scope, branch = "", 0
    for node, text in rows:
        if node.branch != branch:
            branch = node.branch
            lines.append(f"  -- branch {branch}{_cause(view, branch)}")
        if node.scope != scope:
            scope = node.scope
            if scope:
                parts = f"part {scope}" if node.alike == 1 else f"{node.alike} similar parts, the first is {scope}"
                lines.append("  " * _depth(node) + f"  {parts}")
        lines.append(f"{text:<{width}}  {', '.join(details(view, node))}".rstrip())
    if view.left_out:
        lines.append(f"  ... and {view.left_out:,} more leaves")
    return "\n".join(lines) + "\n"


def _depth(node: Node) -> int:
    return node.scope.count(".") + 1 if node.scope else 0


def _cause(view: GraphView, branch: int) -> str:
    for each in view.branches:
        if each.branch == branch:
            return f": {each.cause}, from branch {each.parent} at event {each.seq}"
    return ""


def label(node: Node) -> str:
    """What a person calls it."""
    name = node.name if len(node.name) <= _NAME_CHARS_MAX else node.name[: _NAME_CHARS_MAX - 1] + "…"
    occurrence = node.leaf.rpartition("#")[2].removesuffix("!compensation")
    match node.kind:
        case "step" | "module":
            return name if occurrence == "1" else f"{name} #{occurrence}"
        case "ask":
            return f"ask {name!r}"
        case "compensation":
            return f"undo {name}"
        case "timer":
            return "timer"
        case _:
            return f"{node.kind} {name}"


def details(view: GraphView, node: Node) -> Iterator[str]:
    """Duration, tries, what went wrong."""
    span = view.duration_s(node)
    if node.alike > 1:
        yield f"{node.alike} times, {duration_text(node.shortest_s)} to {duration_text(node.longest_s)} each"
        return
    waits = node.phase in ("open", "retrying")
    yield f"{duration_text(span)}{' so far' if waits else ''}"
    if node.phase in ("failed", "cancelled", "retrying"):
        yield node.phase
    if node.retries:
        yield f"attempt {node.attempt}"
    if node.repeats:
        yield f"begun again {counted(node.repeats, 'time')}"
    if node.hidden:
        yield "hidden"
    if node.error and node.phase in ("failed", "retrying"):
        yield node.error


def duration_text(span_s: float) -> str:
    if span_s < 1.0:
        return f"{span_s * 1000:.0f} ms"
    return f"{span_s:.1f} s" if span_s < 60 else in_words(span_s)


_STYLES = """\
classDef completed fill:#d9f2e0,stroke:#2e8b57,color:#143d26
classDef failed fill:#fbdcdc,stroke:#b22222,color:#5a1010
classDef open fill:#dbe9fb,stroke:#2a5db0,color:#12305f
classDef retrying fill:#fdf0cf,stroke:#b8860b,color:#5c4303
classDef cancelled fill:#ececec,stroke:#8a8a8a,color:#555555
classDef hidden fill:#f6f6f6,stroke:#cccccc,color:#aaaaaa"""


def as_mermaid(view: GraphView) -> str:
    """A flow chart that GitHub and many wikis draw by themselves."""
    lines = ["---", f"title: {_plain(f'{view.run_id} ({view.workflow}, {view.status})')}", "---", "flowchart TD"]
    by_scope: dict[str, list[int]] = {}
    for place, node in enumerate(view.nodes):
        by_scope.setdefault(node.scope, []).append(place)
    for scope, places in by_scope.items():
        pad = "    "
        if scope:
            lines.append(f'    subgraph s{scope.replace(".", "_")}["part {scope}"]')
            pad = "        "
        lines += [f"{pad}{_shape(view, place)}" for place in places]
        if scope:
            lines.append("    end")
    lines += [f"    n{one} --> n{other}" for one, other in view.links]
    # One class each: a node that a branch hid is shown as hidden, whatever its outcome.
    for name in (*MARKS, "hidden"):
        places = [place for place, node in enumerate(view.nodes) if name == ("hidden" if node.hidden else node.phase)]
        if places:
            lines.append(f"    class {','.join(f'n{place}' for place in places)} {name}")
    lines += [f"    {line}" for line in _STYLES.splitlines()]
    if view.left_out:
        lines.append(f"    %% {view.left_out:,} more leaves are left out")
    return "\n".join(lines) + "\n"


def _shape(view: GraphView, place: int) -> str:
    node = view.nodes[place]
    text = f"{_plain(label(node))}<br/>{_plain(', '.join(details(view, node)))}"
    match node.kind:
        case "ask":
            return f'n{place}{{{{"{text}"}}}}'
        case "signal" | "timer":
            return f'n{place}(["{text}"])'
        case "child":
            return f'n{place}[["{text}"]]'
        case _:
            return f'n{place}["{text}"]'


def _plain(text: str) -> str:
    """Text that means nothing to Mermaid."""
    kept = "".join(char if char.isprintable() else " " for char in text)
    # '#' first: it begins what stands for the others.
    for char, code in (("#", "#35;"), ("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"), ("`", "#96;")):
        kept = kept.replace(char, code)
    return kept
