"""Versions: when a run that was paused for want of fitting code is worth another try.

Invariant: each version of the code gets one try, since a pause for this reason names the version that did not fit.
"""

from __future__ import annotations

from buoy.core.events import Body, Paused, Resumed
from buoy.core.state import Pause, State


def pause_for(difference: str, state: State, version: str, *, at_claim: bool) -> list[Body]:
    """What is recorded of a run whose code and log disagree. A pause for reason `version` is read by `may_fit`.

    A run that was paused, and was claimed because somebody wants something of it, waits for fitting code from now on.
    """
    if state.pause is not None and not at_claim:
        return []
    before: list[Body] = [] if state.pause is None else [Resumed(by=f"code of version {version}")]
    if state.version == version:
        return [*before, Paused(reason="nondeterminism", detail=difference)]
    detail = f"{difference} (run is bound to {state.version}, this is {version})"
    return [*before, Paused(reason="version", detail=detail)]


def tried(pause: Pause | None) -> str | None:
    """The version of the code that did not fit, when a run is paused so."""
    if pause is None or pause.reason != "version":
        return None
    _, mark, version = (pause.detail or "").rpartition("this is ")
    return version.removesuffix(")") if mark else None


def may_fit(pause: Pause | None, bound: str, version: str) -> bool:
    """Whether code of `version` may drive a run that is bound to `bound` and paused so."""
    if pause is None or pause.reason != "version":
        return False
    return version == bound or f"this is {version})" not in (pause.detail or "")
