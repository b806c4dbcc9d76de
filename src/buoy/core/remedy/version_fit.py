"""Version fit: whether a run that was paused for its version is worth another attempt.

Invariant: each version of the code gets one attempt: the pause has the versions that did not fit as a field.
"""

from __future__ import annotations

from buoy.core.ids import LeafId
from buoy.core.log.events import Body, Difference, Paused, Resumed
from buoy.core.log.pause import Pause
from buoy.core.log.state import State
from buoy.errors import Diverged


def pause_for(error: Exception, state: State, version: str, reason: str, *, at_claim: bool) -> list[Body]:
    """The pause of a run whose code and log disagree. A pause for reason `version` is read by `worth_retrying`.

    `reason`: of the pause if this is exactly the version that the run is bound to. A paused run that was claimed for a
    request waits for fitting code from now on.
    """
    if state.pause is not None and not at_claim:
        return []
    before: list[Body] = [] if state.pause is None else [Resumed(by=f"code of version {version}", version=version)]
    same = state.version == version
    paused = Paused(
        reason=reason if same else "version",
        detail=str(error) if same else f"{error} (run is bound to {state.version}, this is {version})",
        tried_version=version,
        difference=_difference(error),
    )
    return [*before, paused]


def _difference(error: Exception) -> Difference | None:
    if not isinstance(error, Diverged) or (error.log_leaf is None and error.code_leaf is None):
        return None
    log_leaf, code_leaf = (None if leaf is None else LeafId(leaf) for leaf in (error.log_leaf, error.code_leaf))
    return Difference(log_leaf, code_leaf, error.seq)


def worth_retrying(pause: Pause | None, bound: str, version: str) -> bool:
    """Whether code of `version` may drive a run that is bound to `bound` and paused so."""
    if pause is None or pause.reason != "version":
        return False
    return version == bound or version not in (pause.misfits or (pause.tried_version,))
