"""The ready set of a spec's run: which steps may start, which are over, and what they came to.

Invariants: linear in steps and edges over a whole run; steps that are ready start in the order of the spec. A condition
is looked at when all that its step needs is over, so it depends on the log alone.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from buoy.core.limits import SPEC_PARALLEL, SPEC_PARALLEL_MAX
from buoy.core.log.questions import Json
from buoy.core.spec.plan import SpecPlan
from buoy.core.spec.scope import PlanScope, scope_of
from buoy.errors import BadInput, StepFailed

_NAMES_MAX = 10


class Slot(IntEnum):
    """What a leaf takes up: a core, a little, or nothing."""

    COMMAND = 0
    CALL = 1
    FREE = 2


class Mark(IntEnum):
    """Where a step stands."""

    WAITING = 0
    READY = 1
    ACTIVE = 2
    COMPLETED = 3
    SKIPPED = 4
    FAILED = 5
    UPSTREAM_FAILED = 6
    # Of batch runs: it is not to run.
    CANCELLED = 7


class Frontier:
    """Which steps of one run may start."""

    def __init__(self, plan: SpecPlan, run_id: str, slots: int) -> None:
        self._plan = plan
        self._run_id = run_id
        self._marks = bytearray(len(plan.steps))
        self._left = [len(needs) for needs in plan.needs]
        self._heaps: dict[Slot, list[int]] = {lane: [] for lane in Slot}
        self._results: dict[str, Json] = {}
        self._unsettled = len(plan.steps)
        self._failed: list[tuple[int, StepFailed]] = []
        self._busy = dict.fromkeys(Slot, 0)
        most = plan.spec.max_parallel
        self._room = {
            Slot.COMMAND: most or slots,
            Slot.CALL: most or SPEC_PARALLEL,
            Slot.FREE: SPEC_PARALLEL_MAX,
        }
        self._most = most or max(SPEC_PARALLEL_MAX, slots)
        # Steps whose condition makes no sense, with the reason: they fail when they start.
        self.broken: dict[int, str] = {}

    def begin(self) -> None:
        self._over(deque(node for node, left in enumerate(self._left) if not left))

    @property
    def done(self) -> bool:
        return self._unsettled == 0

    def ready(self, node: int) -> bool:
        return self._marks[node] == Mark.READY

    def next(self, *, commands: bool = True) -> int | None:
        """The next step that may start now, in the order of the spec among those of one lane."""
        if self._busy[Slot.COMMAND] + self._busy[Slot.CALL] < self._most:
            for lane in (Slot.COMMAND, Slot.CALL) if commands else (Slot.CALL,):
                if self._busy[lane] < self._room[lane] and (node := self._pop(lane)) is not None:
                    return node
        return self._pop(Slot.FREE) if self._busy[Slot.FREE] < self._room[Slot.FREE] else None

    def _pop(self, lane: Slot) -> int | None:
        heap = self._heaps[lane]
        while heap:
            node = heapq.heappop(heap)
            # A replay takes steps as the log has them, and leaves them here.
            if self._marks[node] == Mark.READY:
                return node
        return None

    def take(self, node: int) -> None:
        self._marks[node] = Mark.ACTIVE

    def enter(self, lane: Slot) -> None:
        self._busy[lane] += 1

    def leave(self, lane: Slot) -> None:
        self._busy[lane] -= 1

    def complete(self, node: int, outcome: Any) -> None:
        name = self._plan.steps[node].id
        if name in self._plan.referred:
            self._results[name] = outcome
        self._marks[node] = Mark.COMPLETED
        self._unsettled -= 1
        self._over(self._freed(node))

    def fail(self, node: int, error: StepFailed) -> None:
        """Bars all that needs it, by set: each step is looked at once."""
        self._marks[node] = Mark.FAILED
        self._unsettled -= 1
        self._failed.append((node, error))
        stack = [node]
        while stack:
            for each in self._plan.after[stack.pop()]:
                if self._marks[each] in (Mark.WAITING, Mark.READY):
                    self._marks[each] = Mark.UPSTREAM_FAILED
                    self._unsettled -= 1
                    stack.append(each)

    # ---- batch runs: jobs that run again, or not at all

    def again(self, node: int) -> None:
        """A job that was taken, or was not to run, may run when all that it needs is over."""
        if self._marks[node] == Mark.CANCELLED:
            self._unsettled += 1
        elif self._marks[node] != Mark.ACTIVE:
            return
        self._marks[node] = Mark.WAITING
        if not self._left[node]:
            self._over(deque([node]))

    def stop(self, node: int) -> None:
        """A job is not to run. What needs it waits."""
        if self._marks[node] in (Mark.WAITING, Mark.READY, Mark.ACTIVE):
            self._marks[node] = Mark.CANCELLED
            self._unsettled -= 1

    def skip(self, node: int) -> None:
        """A job is not to run. What needs it runs without it."""
        if self._marks[node] == Mark.CANCELLED:
            self._unsettled += 1
        elif self._marks[node] not in (Mark.WAITING, Mark.READY, Mark.ACTIVE):
            return
        self._marks[node] = Mark.SKIPPED
        self._unsettled -= 1
        self._over(self._freed(node))

    def mark(self, node: int) -> Mark:
        """Where that step stands."""
        return Mark(self._marks[node])

    def _freed(self, node: int) -> deque[int]:
        """Those that waited for nothing but this step."""
        freed: deque[int] = deque()
        for each in self._plan.after[node]:
            self._left[each] -= 1
            if not self._left[each] and self._marks[each] == Mark.WAITING:
                freed.append(each)
        return freed

    def _over(self, fresh: deque[int]) -> None:
        """Steps of which all that they need is over: ready, or skipped, which may free others."""
        while fresh:
            node = fresh.popleft()
            if self._wanted(node):
                self._marks[node] = Mark.READY
                heapq.heappush(self._heaps[self._lane(node)], node)
            else:
                self._marks[node] = Mark.SKIPPED
                self._unsettled -= 1
                fresh.extend(self._freed(node))

    def _wanted(self, node: int) -> bool:
        condition = self._plan.steps[node].step.when
        if condition is None:
            return True
        try:
            return self.scope(node).holds(condition)
        except BadInput as error:
            self.broken[node] = str(error)
            return True

    def _lane(self, node: int) -> Slot:
        first = self._plan.steps[node].step.actions[0]
        if first.run is not None:
            return Slot.COMMAND
        return Slot.CALL if first.call is not None else Slot.FREE

    def scope(self, node: int, modules: Mapping[str, Json] | None = None) -> PlanScope:
        """What that step can see."""
        return scope_of(self._plan, self._plan.steps[node], self._run_id, self._results, modules)

    # ---- what the whole came to

    def failure(self) -> StepFailed | None:
        """Why the run failed, naming the steps; None if nothing did."""
        if not self._failed:
            return None
        node, first = self._failed[0]
        more = ""
        if len(self._failed) > 1:
            more += f"; failed too: {self._names([each for each, _ in self._failed[1:]])}"
        blocked = [each for each, mark in enumerate(self._marks) if mark == Mark.UPSTREAM_FAILED]
        if blocked:
            more += f"; not run, because they need what failed: {self._names(blocked)}"
        step, reason = first.step or self._plan.steps[node].id, f"{first.reason or first}{more}"
        return StepFailed(f"{first}{more}", step=step, type=first.type, attempts=first.attempts, reason=reason)

    def result(self) -> Json:
        """What the spec says that a run gives back; else how many steps did what."""
        wanted = self._plan.spec.result
        if wanted is not None:
            scope = PlanScope(self._plan, self._plan.singles, self._run_id, self._results)
            return scope.value(wanted)  # type: ignore[arg-type]
        skipped = [each for each, mark in enumerate(self._marks) if mark == Mark.SKIPPED]
        names: list[Json] = [self._plan.steps[each].id for each in skipped[:_NAMES_MAX]]
        cancelled = self._marks.count(Mark.CANCELLED)
        completed = len(self._marks) - len(skipped) - cancelled
        found: dict[str, Json] = {"completed": completed, "skipped": len(skipped), "skipped_steps": names}
        return {**found, "cancelled": cancelled} if cancelled else found

    def _names(self, nodes: list[int]) -> str:
        names = [self._plan.steps[each].id for each in nodes[:_NAMES_MAX]]
        more = f" and {len(nodes) - _NAMES_MAX} more" if len(nodes) > _NAMES_MAX else ""
        return ", ".join(names) + more
