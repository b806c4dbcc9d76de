"""Report lines: what a long command says while it works, one line each, as text or as JSON.

Invariant: a line is one write, so that processes which share a terminal do not mix their lines. A reader that has gone
away does not stop the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from buoy.cli.terminal.output import json_line
from buoy.cli.terminal.render import clock
from buoy.cli.terminal.visible import visible


class ReportLines:
    """Lines with the time. `process`: which worker of several speaks."""

    def __init__(
        self, out: TextIO, now: Callable[[], float], *, as_json: bool, process: int | None = None
    ) -> None:  # fmt: skip
        self._out: TextIO | None = out
        self._now = now
        self._as_json = as_json
        self._facts: dict[str, object] = {} if process is None else {"process": process}
        self._mark = "" if process is None else f"[{process}] "

    def tell(self, what: str, text: str, **facts: object) -> None:
        now = self._now()
        if self._as_json:
            line = json_line({"at": now, "what": what, **self._facts, **facts})
        else:
            line = f"{clock(now)}  {self._mark}{visible(text)}"
        try:
            if self._out is not None:
                self._out.write(line + "\n")
                self._out.flush()
        except (OSError, ValueError):
            self._out = None
