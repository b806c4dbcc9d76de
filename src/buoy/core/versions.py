"""Versions: when a run that was paused for want of fitting code is worth another try.

Invariant: each version of the code gets one try, since a pause for this reason names the version that did not fit.
"""

from __future__ import annotations

from buoy.core.state import Pause


def pause_detail(difference: str, bound: str, version: str) -> str:
    """What a pause for reason `version` says; `may_fit` reads it again."""
    return f"{difference} (run is bound to {bound}, this is {version})"


def may_fit(pause: Pause | None, bound: str, version: str) -> bool:
    """Whether code of `version` may drive a run that is bound to `bound` and paused so."""
    if pause is None or pause.reason != "version":
        return False
    return version == bound or f"this is {version})" not in (pause.detail or "")
