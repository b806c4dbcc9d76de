"""Pause: why a run is paused, by whom, until when."""

from __future__ import annotations

import msgspec

from buoy.core.log import events as e

# The reasons that the code gave, not a person.
CODE_REASONS = ("version", "nondeterminism", "input")


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    reason: str
    detail: str | None = None
    at: float = 0.0
    by: str | None = None
    # The message that asked for it.
    message: int | None = None
    # When the run resumes by itself.
    expires_at: float | None = None
    # The version of the code that did not fit, and where it first differed from the log.
    tried_version: str | None = None
    difference: e.Difference | None = None
    # All versions that were tried and did not fit, this one included.
    misfits: tuple[str, ...] = ()


def until_asked(pause: Pause | None) -> bool:
    """Whether only a message can wake the run: it is paused, and its pause does not end by itself."""
    return pause is not None and pause.expires_at is None
