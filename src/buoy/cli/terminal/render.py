"""Render: times, ages and tables for a terminal or a pipe. Rich is loaded only where it is used."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from buoy.core.diagnosis.facts import Facts
from buoy.core.diagnosis.health import Health
from buoy.core.durations import in_words
from buoy.core.explain.phrases import active_leaves, current_progress, progress_text, questions
from buoy.core.log.document import Document, OpenLeaf

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Wide enough that nothing is cut when a program reads the output.
_PIPE_COLUMNS = 500

HEALTH_STYLE = {
    Health.LIVE: "green",
    Health.IDLE: "dim",
    Health.SUSPECT: "yellow",
    Health.DEAD: "red",
    Health.STALLED: "red",
    Health.DRIFTED: "red",
    Health.UNKNOWN: "yellow",
}


def console(*, err: bool = False) -> Console:
    """A console for this output, without guessed highlights. A pipe gets whole lines."""
    from buoy.cli.terminal.plain_console import PlainConsole

    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else _PIPE_COLUMNS
    return PlainConsole(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=width is None)


def local(at: float) -> str:
    """Local date and time."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def clock(at: float) -> str:
    """Local time, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]


def ago(span_s: float | None) -> str:
    return "" if span_s is None else f"{in_words(max(span_s, 0.0))} ago"


def one_line(text: str) -> str:
    """The text without line breaks and other characters that move the cursor."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def plain_table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def where(document: Document) -> str:
    """The step or wait that a run is at."""
    # A group is open as long as its parts are: these say more.
    single = [leaf for leaf in document.open if leaf.kind != "group"]
    shown = active_leaves(document) or questions(document) or single or list(document.open)
    if not shown:
        return ""
    more = document.open_count - 1 - (len(document.open) - len(single) if single else 0)
    return _short(shown[0]) + (f" +{more}" if more else "")


def _short(leaf: OpenLeaf) -> str:
    match leaf.kind:
        case "step" | "module":
            return f"{leaf.name} (retry)" if leaf.retrying else leaf.name
        case "ask":
            return f"? {leaf.name}"
        case "signal":
            return f"signal {leaf.name}"
        case _:
            return f"{leaf.kind} {leaf.name}" if leaf.kind != leaf.name else leaf.kind


def attempt(document: Document) -> str:
    return str(max((leaf.attempt for leaf in document.open if leaf.kind in ("step", "module")), default="") or "")


def progress_cell(facts: Facts) -> str:
    """The progress of its step; of a dead owner, the last known progress."""
    progress = current_progress(facts)
    if progress is None:
        return ""
    gone = facts.holder is not None and facts.holder.gone
    return f"had come to {progress_text(progress)}" if gone else progress_text(progress)


def owner_cells(facts: Facts) -> tuple[str, str, str]:
    """Age of the last beat, pid and host of the runner that holds the run."""
    holder = facts.holder
    if holder is None:
        return "", "", ""
    return ago(holder.beat_age_s), str(holder.pid or ""), holder.host
