"""Log lines of a server, on standard error: as plain text, or each as one JSON object with the fields of its writer.

Invariants: a JSON line is valid whatever the message holds. Fields are those of `extra`: run, branch, actor and so on;
what is not plain data is written as its text. A recovery is a line in both forms.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

import msgspec

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """One object for each line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN and value is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode(errors="replace")


def log_json(stream: TextIO | None = None) -> None:
    """Writes all log lines of this process as JSON, to standard error."""
    _write(JsonFormatter(), stream)


def log_plain(stream: TextIO | None = None) -> None:
    """Writes all log lines of this process as text, to standard error."""
    _write(logging.Formatter("%(asctime)s  %(levelname)s  %(name)s: %(message)s"), stream)


def _write(formatter: logging.Formatter, stream: TextIO | None) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
