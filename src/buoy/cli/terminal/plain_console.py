"""Plain console: Rich, with errors left to the caller."""

from __future__ import annotations

from rich.console import Console


class PlainConsole(Console):
    """Raises when its reader is gone."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process; whether a reader that went away matters is for the caller to say."""
        raise BrokenPipeError
