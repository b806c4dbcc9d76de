"""Plain console: Rich, with errors left to the caller."""

from __future__ import annotations

from rich.console import Console


class PlainConsole(Console):
    """Raises when its reader is gone."""

    def on_broken_pipe(self) -> None:
        """Raises instead of ending the process, as Rich would: the caller decides."""
        raise BrokenPipeError
