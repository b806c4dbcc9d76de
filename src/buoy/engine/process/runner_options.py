"""Runner options: how much work a runner takes, and of which kinds."""

from __future__ import annotations

import msgspec

from buoy.core.limits import DRIVING_RUNS_MAX, STOP_GRACE_S, SWEEP_DELAY_S, WAITING_RUNS_MAX


class RunnerOptions(msgspec.Struct, frozen=True):
    """Settings of a runner that a person may change."""

    waiting_runs_max: int = WAITING_RUNS_MAX
    driving_runs_max: int = DRIVING_RUNS_MAX
    step_threads: int = 32
    workflow_threads: int = 64
    stop_grace_s: float = STOP_GRACE_S
    # After the grace time async steps are cancelled. This is their time to clean up.
    cancel_s: float = 2.0
    # Delay of the first whole sweep, plus up to 10 s. Dead processes are looked for at once.
    sweep_delay_s: float = SWEEP_DELAY_S
    # Modules whose functions `call:` steps of specs may use; "flows" allows flows and flows.anything.
    calls: tuple[str, ...] = ()
