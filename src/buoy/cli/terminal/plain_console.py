"""Plain console: Rich, with errors left to the caller, and text that a terminal only shows."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from buoy.cli.terminal.visible import visible


class PlainConsole(Console):
    """Raises when its reader is gone. Control characters of what it prints are shown, not obeyed."""

    def on_broken_pipe(self) -> None:
        """Raises instead of ending the process, as Rich would: the caller decides."""
        raise BrokenPipeError

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of what is printed. Rich's own control codes and styles stand beside the text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
