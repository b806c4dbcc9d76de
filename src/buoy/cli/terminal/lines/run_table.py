"""Run table: runs as lines that fit a terminal.

Invariants: the id and the status of a run are never cut, however narrow the terminal is. Columns that matter least go
first; of the others the long ones are shortened, each row for itself, so that one long text costs the others nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.cells import cell_len, set_cell_size

from buoy.cli.terminal import render
from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.health import judge
from buoy.core.durations import in_words
from buoy.core.explain.phrases import status_text

HEADS = ("RUN", "WORKFLOW", "STATUS", "HEALTH", "AT", "TRY", "AGE", "LAST BEAT", "PID", "HOST", "PROGRESS")
# Which columns a narrow terminal does without, the first ones first. The id usually begins with the workflow's name.
_DROPPED_FIRST = ("HOST", "PID", "LAST BEAT", "TRY", "PROGRESS", "WORKFLOW", "AGE", "HEALTH", "AT")
# Columns that may be cut, and how much of them must be left for them to be worth a place.
_LEAST = {"AT": 12, "WORKFLOW": 10, "PROGRESS": 12}
_GAP = 2


def run_lines(found: Sequence[Facts], width: int | None) -> list[str]:
    """A head and one line for each run; without a width: all columns, and nothing is cut."""
    rows = [_cells(facts) for facts in found]
    widths = {head: max(cell_len(head), *(cell_len(row[place]) for row in rows)) for place, head in enumerate(HEADS)}
    if width is not None:
        widths = _fitted(widths, [head for head in HEADS if any(row[HEADS.index(head)] for row in rows)], width)
    shown = [(place, head) for place, head in enumerate(HEADS) if head in widths]
    lines = [_line([_cut(head, widths[head]) for _, head in shown], dict.fromkeys(range(len(shown)), "bold"))]
    at = next((number for number, (_, head) in enumerate(shown) if head == "HEALTH"), -1)
    for row, facts in zip(rows, found, strict=True):
        colour = render.HEALTH_STYLE[judge(facts).health]
        lines.append(_line([_cut(row[place], widths[head]) for place, head in shown], {at: colour}))
    return lines


def _line(cells: list[str], styles: dict[int, str]) -> str:
    """The cells side by side, some of them in colour."""
    last = max((number for number, cell in enumerate(cells) if cell.strip()), default=0)
    cells = [*cells[:last], cells[last].rstrip()]
    return (" " * _GAP).join(_styled(cell, styles.get(number)) for number, cell in enumerate(cells))


def _styled(text: str, style: str | None) -> str:
    match style:
        case None:
            return text
        case "bold":
            return click.style(text, bold=True)
        case "dim":
            return click.style(text, dim=True)
        case _:
            return click.style(text, fg=style)


def _cells(facts: Facts) -> tuple[str, ...]:
    doc = facts.document
    cells = (
        doc.run_id,
        doc.workflow,
        status_text(doc.status),
        judge(facts).health.value,
        render.where(doc),
        render.attempt(doc),
        in_words(max(facts.now - doc.created_at, 0.0)),
        *render.owner_cells(facts),
        render.progress_cell(facts),
    )
    return tuple(render.one_line(each) for each in cells)


def _fitted(natural: dict[str, int], filled: list[str], width: int) -> dict[str, int]:
    """The columns that have a place, with their widths."""
    least = {head: min(natural[head], _LEAST.get(head, natural[head])) for head in filled}
    for head in _DROPPED_FIRST:
        if _needed(least) > width:
            least.pop(head, None)
    spare = max(width - _needed(least), 0)
    growing = sorted((head for head in least if natural[head] > least[head]), key=lambda head: natural[head])
    for place, head in enumerate(growing):
        more = min(natural[head] - least[head], spare // (len(growing) - place))
        least[head], spare = least[head] + more, spare - more
    return least


def _needed(widths: dict[str, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _cut(text: str, width: int) -> str:
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
