"""The graph of a run's jobs: order, levels, parts, critical path, closures, and the groups that a scheduler serves.

Invariants: everything is linear in jobs and edges and uses no recursion. Closures are sets: a diamond is visited once.
The same jobs give the same answers, in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from buoy.core.batch.resources import ONE_CPU
from buoy.core.limits import SPEC_EDGES_MAX, SPEC_STEPS_MAX
from buoy.core.spec import graph
from buoy.core.spec.model import Resources
from buoy.core.spec.plan import SpecPlan
from buoy.core.spec.problems import names
from buoy.errors import BadInput, TooLarge


class GraphJob(msgspec.Struct, frozen=True):
    """One job as a graph sees it. `seconds`: the time that it is expected to take."""

    name: str
    depends_on: tuple[str, ...] = ()
    resources: Resources = ONE_CPU
    seconds: float = 1.0


class GroupKey(NamedTuple):
    """What makes two jobs ask for the same kind of allocation."""

    resources: Resources
    has_dependencies: bool


class SchedulerGroup(msgspec.Struct, frozen=True):
    """Jobs that one kind of allocation serves. Those with dependencies cannot start when the run starts."""

    key: GroupKey
    jobs: tuple[str, ...]


class CriticalPath(msgspec.Struct, frozen=True):
    """The chain of jobs that takes longest, and how long it takes."""

    jobs: tuple[str, ...]
    seconds: float


class WorkflowGraph:
    """Jobs and what each of them depends on, by number."""

    def __init__(self, jobs: Sequence[GraphJob], needs: Sequence[Sequence[int]]) -> None:
        self.jobs = jobs
        self.needs = needs
        self.after = graph.dependents(needs)
        self.index = {job.name: number for number, job in enumerate(jobs)}
        order = graph.topological(needs)
        if order is None:
            circle = [jobs[number].name for number in graph.cycle(needs)]
            shown = circle if len(circle) <= 10 else [*circle[:9], "..."]
            raise BadInput(f"a cycle: {' needs '.join([*shown, circle[0]])}; remove one of these dependencies")
        self.order = order

    @classmethod
    def from_jobs(cls, jobs: Iterable[GraphJob]) -> WorkflowGraph:
        """The graph of these jobs. A dependency on an unknown job, a cycle or too many of them are refused."""
        given = list(jobs)
        if len(given) > SPEC_STEPS_MAX:
            raise TooLarge(f"too many jobs: {len(given):,}; the limit is {SPEC_STEPS_MAX:,}")
        edges = sum(len(job.depends_on) for job in given)
        if edges > SPEC_EDGES_MAX:
            raise TooLarge(f"too many dependencies: {edges:,}; the limit is {SPEC_EDGES_MAX:,}")
        index: dict[str, int] = {}
        for number, job in enumerate(given):
            if index.setdefault(job.name, number) != number:
                raise BadInput(f"job {job.name!r} is there twice; give one of them another name")
        needs = [tuple(dict.fromkeys(_number(index, job, each) for each in job.depends_on)) for job in given]
        return cls(given, needs)

    @classmethod
    def from_plan(cls, plan: SpecPlan) -> WorkflowGraph:
        """The graph of a planned spec."""
        jobs = [
            GraphJob(
                planned.id, resources=planned.step.resources or ONE_CPU, seconds=_expected_s(planned.step.resources)
            )
            for planned in plan.steps
        ]
        return cls(jobs, plan.needs)

    @property
    def edges(self) -> int:
        return sum(map(len, self.needs))

    def scheduler_groups(self, names_of: Iterable[str] | None = None) -> list[SchedulerGroup]:
        """The jobs (or these of them) by what they need and whether they wait for others, in order."""
        wanted = range(len(self.jobs)) if names_of is None else sorted(self._numbers(names_of))
        groups: dict[GroupKey, list[str]] = {}
        for number in wanted:
            job = self.jobs[number]
            groups.setdefault(GroupKey(job.resources, bool(self.needs[number])), []).append(job.name)
        return [SchedulerGroup(key, tuple(members)) for key, members in groups.items()]

    def levels(self) -> list[list[str]]:
        """The jobs by how many others must follow each other before them at least."""
        depth = [0] * len(self.jobs)
        levels: list[list[str]] = []
        for number in self.order:
            depth[number] = 1 + max((depth[each] for each in self.needs[number]), default=-1)
            while len(levels) <= depth[number]:
                levels.append([])
            levels[depth[number]].append(self.jobs[number].name)
        return levels

    def components(self) -> list[list[str]]:
        """The parts that have nothing to do with each other, each in the order of its jobs."""
        part = [-1] * len(self.jobs)
        found: list[list[str]] = []
        for start in range(len(self.jobs)):
            if part[start] >= 0:
                continue
            part[start] = len(found)
            stack, members = [start], []
            while stack:
                number = stack.pop()
                members.append(number)
                for each in (*self.needs[number], *self.after[number]):
                    if part[each] < 0:
                        part[each] = len(found)
                        stack.append(each)
            found.append([self.jobs[number].name for number in sorted(members)])
        return found

    def critical_path(self) -> CriticalPath:
        """The chain with the largest sum of expected seconds."""
        if not self.jobs:
            return CriticalPath((), 0.0)
        ends = [0.0] * len(self.jobs)
        before = [-1] * len(self.jobs)
        for number in self.order:
            for each in self.needs[number]:
                if before[number] < 0 or ends[each] > ends[before[number]]:
                    before[number] = each
            ends[number] = self.jobs[number].seconds + (ends[before[number]] if before[number] >= 0 else 0.0)
        last = max(range(len(ends)), key=ends.__getitem__)
        total, chain = ends[last], []
        while last >= 0:
            chain.append(self.jobs[last].name)
            last = before[last]
        return CriticalPath(tuple(reversed(chain)), total)

    def dependents(self, of: Iterable[str]) -> set[str]:
        """All jobs that need one of these, directly or not."""
        return {self.jobs[each].name for each in graph.descendants(self.after, self._numbers(of))}

    def dependencies(self, of: Iterable[str]) -> set[str]:
        """All jobs that one of these needs, directly or not."""
        return {self.jobs[each].name for each in graph.descendants(self.needs, self._numbers(of))}

    def _numbers(self, wanted: Iterable[str]) -> list[int]:
        found = []
        for each in wanted:
            if each not in self.index:
                raise BadInput(f"unknown job {each!r}; {names(self.index, each)}")
            found.append(self.index[each])
        return found


def _number(index: dict[str, int], job: GraphJob, need: str) -> int:
    found = index.get(need)
    if found is None:
        raise BadInput(f"job {job.name!r} needs {need!r}, which is no job; {names(index, need)}")
    return found


def _expected_s(resources: Resources | None) -> float:
    return 1.0 if resources is None or resources.time_s is None else resources.time_s


def cancelled_with(plan: SpecPlan, node: int) -> list[int]:
    """All that need this step, as far as the chain is of steps that are cancelled with what they need."""
    found: dict[int, None] = {}
    stack = [node]
    while stack:
        for each in plan.after[stack.pop()]:
            if each not in found and plan.steps[each].step.cancel_with_needs:
                found[each] = None
                stack.append(each)
    return list(found)
