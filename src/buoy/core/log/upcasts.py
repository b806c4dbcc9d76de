"""Upcasts: stored payloads of earlier versions, one step nearer to today's.

Before version 2, `paused` and `workflow_failed` had sentences for people where a program needs facts: which code was
tried, which leaves differ, which step ended the run. These sentences are read here, once, and nowhere else.
Invariant: an upcast adds what the old text certainly says and leaves the rest out; it never changes a field.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Stored = dict[str, Any]

# "event 4 is the outcome of a#1, but the code asked for b#1 instead", "the log has a#1, but the code no longer asks..."
_DIFFERENCE = re.compile(
    r"(?:event (?P<seq>\d+) is the outcome of|the log has) (?P<log>[^\s,]+), "
    r"but the code (?:asked for (?P<code>[^\s,]+) instead|no longer asks for it)"
)
# "... (run is bound to 1f0c, this is 77ab)"
_TRIED = re.compile(r"\(run is bound to .*, this is (?P<version>.*)\)\Z", re.DOTALL)
# "pay#1 failed: Declined: no", "child order.c-1 failed: ...", "...; found: A4: pay#1 failed with an unknown error".
# The first one counts: what follows it are the words of the step or of the child.
_CAUSE = re.compile(
    r"(?<!\S)(?:child (?P<child>[A-Za-z0-9][A-Za-z0-9._-]*) (?:failed|was cancelled)"
    r"|(?P<leaf>[^\s,;]+#\d+) failed(?::| with an? \w+ error))"
)


def paused(body: Stored) -> Stored:
    """Version 1 had the difference and the tried version in `detail`."""
    reason, detail = body.get("reason"), body.get("detail")
    if reason not in ("version", "nondeterminism") or not isinstance(detail, str):
        return body
    found: Stored = {}
    tried = _TRIED.search(detail) if reason == "version" else None
    if tried is not None:
        found["tried_version"] = tried["version"]
    differs = _DIFFERENCE.search(detail)
    if differs is not None:
        seq = None if differs["seq"] is None else int(differs["seq"])
        found["difference"] = {"log_leaf": differs["log"], "code_leaf": differs["code"], "seq": seq}
    return {**found, **body}


def workflow_failed(body: Stored) -> Stored:
    """Version 1 named the step, or the child, only in the error's message."""
    message = body["error"]["message"]
    cause = _CAUSE.search(message) if isinstance(message, str) else None
    if cause is None:
        return body
    return {"cause_child": cause["child"], "cause_leaf": cause["leaf"], **body}


# (name, version) -> a function from the stored payload of that version to the payload of the next one.
Upcasts = dict[tuple[str, int], Callable[[Stored], Stored]]
UPCASTS: Upcasts = {("paused", 1): paused, ("workflow_failed", 1): workflow_failed}
