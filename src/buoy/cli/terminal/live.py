"""Live: shows a run while this process drives it: a live view on a terminal, plain lines otherwise, or nothing.

Invariant: everything goes to standard error; standard output carries the result and the output of steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from buoy.cli.terminal.lines.events import leaf_line, spoken
from buoy.cli.terminal.render import clock, console
from buoy.core.diagnosis.facts import ProgressFacts
from buoy.core.durations import in_words
from buoy.core.explain.phrases import progress_text, status_text
from buoy.core.log.document import Document, OpenLeaf
from buoy.core.log.events import Event

_LEAVES_SHOWN = 12
_MARKS = {"step": ">", "module": ">", "ask": "?", "signal": "~", "timer": "z", "child": "+", "compensation": "<"}


class RunDisplay(Protocol):
    """Shows a run while it is driven."""

    # Whether the view is made out of events rather than of the document.
    wants_events: bool

    def show(self, document: Document, progress: ProgressFacts | None, now: float) -> None: ...

    def events(self, events: Sequence[Event]) -> None: ...

    def say(self, text: str) -> None: ...

    def suspended(self) -> AbstractContextManager[None]: ...

    def close(self) -> None: ...


class Lines:
    """One line per event. `quiet`: nothing at all, for `--json`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.wants_events = not quiet
        self._quiet = quiet
        self._console = console(err=True)
        self._note = ""

    def show(self, document: Document, progress: ProgressFacts | None, now: float) -> None:
        note = "" if progress is None else f"{progress.leaf}: {progress_text(progress)}"
        if note and note != self._note:
            self._note = note
            self.say(note)

    def events(self, events: Sequence[Event]) -> None:
        for event in events:
            self._print(f"{clock(event.at)}  {spoken(event)}")

    def say(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        try:
            if not self._quiet:
                self._console.print(text)
        except OSError:
            self._quiet = True  # the reader is gone; the run continues

    @contextmanager
    def suspended(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        """Nothing is left open."""


class LiveView:
    """A view that is redrawn in place."""

    wants_events = False

    def __init__(self) -> None:
        self._console = console(err=True)
        # What steps print goes above the view, unless it goes somewhere else anyway.
        self._shared = sys.stdout.isatty()
        self._live = self._begun()

    def _begun(self) -> Live:
        """A new view each time: a restarted one would overwrite as many lines as it had before."""
        live = Live(console=self._console, refresh_per_second=8, transient=True, redirect_stdout=self._shared)
        live.start()
        return live

    def show(self, document: Document, progress: ProgressFacts | None, now: float) -> None:
        self._live.update(picture(document, progress, now))

    def events(self, events: Sequence[Event]) -> None:
        """Ignored: the document has all that is shown."""

    def say(self, text: str) -> None:
        self._console.print(text)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside, the caller owns the terminal."""
        self._live.stop()
        try:
            yield
        finally:
            self._live = self._begun()

    def close(self) -> None:
        self._live.stop()
        self._console.show_cursor(True)


def picture(document: Document, progress: ProgressFacts | None, now: float) -> RenderableType:
    """A run as a few lines."""
    head = Text()
    head.append(document.run_id, style="bold")
    head.append(f"  {document.workflow}  ")
    head.append(status_text(document.status), style="cyan")
    head.append(f"  {in_words(now - document.created_at)}  {document.completed_count} done", style="dim")
    if document.failed_count:
        head.append(f", {document.failed_count} failed", style="red")
    table = Table.grid(padding=(0, 2))
    for leaf in document.open[:_LEAVES_SHOWN]:
        table.add_row(*_leaf_cells(leaf, progress, now))
    more = document.open_count - _LEAVES_SHOWN
    rest = [Text(f"  and {more} more", style="dim")] if more > 0 else []
    return Group(head, table, *rest)


def _leaf_cells(leaf: OpenLeaf, progress: ProgressFacts | None, now: float) -> list[RenderableType]:
    mark = Text("  r" if leaf.retrying else f"  {_MARKS.get(leaf.kind, '>')}", style="cyan")
    since = in_words(now - leaf.since)
    if leaf.due_at is not None:
        since = f"due in {in_words(max(leaf.due_at - now, 0.0))}"
    mine = progress if progress is not None and progress.leaf == leaf.leaf else None
    bar: RenderableType = ""
    if mine is not None and mine.total:
        bar = ProgressBar(total=mine.total, completed=mine.done or 0.0, width=24)
    return [mark, Text(leaf_line(leaf)), Text(since, style="dim"), bar, Text(progress_text(mine) if mine else "")]
