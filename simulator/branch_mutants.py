"""Branch mutants: planted bugs of going back: what a branch hides, keeps, says, and does under which key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from buoy.core.ids import BranchId, RunId
from buoy.core.log import events as e
from buoy.core.log import lineage
from buoy.core.log.append import Appended
from buoy.core.log.state import State
from buoy.core.remedy.rewind import RewindPlan
from buoy.engine.client import rewind
from buoy.engine.process import takeover
from buoy.recovery import remedies
from simulator.mutants import Mutant

if TYPE_CHECKING:
    from simulator.world import World


class ReuseKey(Mutant):
    """A step that was called back runs under the key of its first effect."""

    name = "reuse-a-key"
    rules = ("keys tell effects apart", "what is called back is new")
    enough = 60

    def install(self, world: World) -> None:
        self.patch(State, "raise_epoch", lambda state, leaf: None)


class DropKept(Mutant):
    """A jump drops what it promised to keep."""

    name = "drop-kept-leaves"
    rules = ("branches keep what stands", "branches name what runs again")
    enough = 150

    def install(self, world: World) -> None:
        def planned(*args: Any, **kwargs: Any) -> Any:
            return msgspec.structs.replace(real(*args, **kwargs), kept=())

        real = self.patch(rewind, "plan_return", planned)


class HidePause(Mutant):
    """A new branch hides the pause of its run."""

    name = "hide-a-pause"
    rules = ("a paused run starts nothing", "the document is the folded log", "documents tell what runs wait for")
    enough = 300

    def install(self, world: World) -> None:
        def run_level(body: e.Body) -> bool:
            return not isinstance(body, e.Paused | e.Resumed) and bool(real(body))

        real = self.patch(lineage, "is_run_level", run_level)


class ForgetJump(Mutant):
    """The request for a branch is recorded under another branch's name."""

    name = "forget-the-jump"
    rules = ("recoveries are audited",)
    enough = 60

    def install(self, world: World) -> None:
        def others(plan: RewindPlan, *args: Any, **kwargs: Any) -> Any:
            jump, branch = real(plan, *args, **kwargs)
            return msgspec.structs.replace(jump, new_branch=BranchId(99)), branch

        real = self.patch(RewindPlan, "events", others)


class HideTooMuch(Mutant):
    """A reader of a log with a branch misses one of the steps that the branch keeps."""

    name = "hide-too-much"
    rules = ("branches name what runs again", "the document is the folded log", "executed again")
    enough = 100

    def install(self, world: World) -> None:
        def inherit(parent: list[e.Event], created: e.BranchCreated) -> list[e.Event]:
            found: list[e.Event] = real(parent, created)
            done = [event.body.leaf for event in found if isinstance(event.body, e.StepCompleted)]
            return [event for event in found if not done or e.leaf_of(event.body) != done[0]]

        real = self.patch(lineage, "_inherit", inherit)


class ForgetReason(Mutant):
    """A recovery hides history, and does not say by whom and on what evidence."""

    name = "forget-the-reason"
    rules = ("recoveries are audited",)
    enough = 200

    def install(self, world: World) -> None:
        def silent(
            run_id: RunId, log: Sequence[e.Event], bodies: Sequence[e.Body], at: float, nonce: str,
            folded: State | None = None,
        ) -> Appended:  # fmt: skip
            made: Appended = real(run_id, log, [_silenced(body) for body in bodies], at, nonce, folded)
            return made

        real = self.patch(remedies, "append", silent)
        self.patch(takeover, "append", silent)


def _silenced(body: e.Body) -> e.Body:
    if isinstance(body, e.WorkflowRecovered):
        return msgspec.structs.replace(body, evidence={}, actor="")
    return body


BRANCH_MUTANTS: tuple[type[Mutant], ...] = (ReuseKey, DropKept, HidePause, ForgetJump, HideTooMuch, ForgetReason)
