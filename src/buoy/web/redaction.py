"""Redaction: hides the values of secret keys in what the API and live streams show.

Invariants: only what leaves through the API is changed; the log keeps every value, and remote runners get it whole. A
pattern matches a whole key, in any letter case.
Absent on purpose: a guess. Which keys are secret is for the person who runs the server to say.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import msgspec

from buoy.errors import BadInput

HIDDEN = "[redacted]"
_PATTERNS_MAX = 100


class Redaction:
    """The patterns of one server; without any it changes nothing and costs nothing."""

    def __init__(self, patterns: tuple[str, ...] = ()) -> None:
        if len(patterns) > _PATTERNS_MAX:
            raise BadInput(f"more than {_PATTERNS_MAX} patterns to redact; name fewer, with * for parts of keys")
        joined = "|".join(fnmatch.translate(each.lower()) for each in patterns)
        self._secret = re.compile(joined) if patterns else None

    @property
    def active(self) -> bool:
        """Whether any value is hidden."""
        return self._secret is not None

    def apply(self, data: bytes) -> bytes:
        """The same JSON without the values of secret keys."""
        if self._secret is None:
            return data
        return msgspec.json.encode(self._clean(msgspec.json.decode(data)))

    def _clean(self, value: Any) -> Any:
        assert self._secret is not None
        if isinstance(value, dict):
            return {
                key: HIDDEN if self._secret.match(key.lower()) else self._clean(each) for key, each in value.items()
            }
        return [self._clean(each) for each in value] if isinstance(value, list) else value
