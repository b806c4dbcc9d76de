"""Versions: when a run that was paused for want of fitting code is worth another try.

Invariant: each version of the code gets one try, since a pause for this reason names the version that did not fit.
"""

from __future__ import annotations

from buoy.core.events import Paused
from buoy.core.state import Pause


def pause_for(difference: str, bound: str, version: str) -> Paused:
    """The pause of a run whose code and log disagree. What one for reason `version` says is read by `may_fit`."""
    if bound == version:
        return Paused(reason="nondeterminism", detail=difference)
    return Paused(reason="version", detail=f"{difference} (run is bound to {bound}, this is {version})")


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
