"""The graph of jobs: groups, levels, parts, critical path and closures."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoy.core.batch.graph import GraphJob, GroupKey, WorkflowGraph
from buoy.core.spec.model import Resources
from buoy.errors import BadInput, TooLarge


@st.composite
def job_lists(draw: st.DrawFn) -> list[GraphJob]:
    """Jobs that need only earlier ones, in any order."""
    count = draw(st.integers(1, 25))
    jobs = []
    for number in range(count):
        needs = draw(st.lists(st.integers(0, number - 1), max_size=4)) if number else []
        cpus, seconds = draw(st.integers(1, 3)), draw(st.integers(1, 9))
        jobs.append(GraphJob(f"j{number}", tuple(f"j{each}" for each in needs), Resources(cpus=cpus), float(seconds)))
    return draw(st.permutations(jobs))


def _closure(jobs: list[GraphJob], start: str) -> set[str]:
    """By repetition until nothing changes: slow, and plain."""
    found: set[str] = set()
    while True:
        more = {job.name for job in jobs if {start, *found} & set(job.depends_on)}
        if more <= found:
            return found
        found |= more


@settings(max_examples=60, deadline=None)
@given(job_lists())
def test_each_job_is_in_one_group_one_level_and_one_part(jobs: list[GraphJob]) -> None:
    graph = WorkflowGraph.from_jobs(jobs)
    names = sorted(job.name for job in jobs)
    groups = graph.scheduler_groups()
    assert sorted(itertools.chain.from_iterable(group.jobs for group in groups)) == names
    assert sorted(itertools.chain.from_iterable(graph.levels())) == names
    assert sorted(itertools.chain.from_iterable(graph.components())) == names
    for group in groups:
        for name in group.jobs:
            job = next(each for each in jobs if each.name == name)
            assert GroupKey(job.resources, bool(job.depends_on)) == group.key


@settings(max_examples=60, deadline=None)
@given(job_lists())
def test_a_level_needs_only_levels_before_it(jobs: list[GraphJob]) -> None:
    level = {name: depth for depth, names in enumerate(WorkflowGraph.from_jobs(jobs).levels()) for name in names}
    assert all(level[need] < level[job.name] for job in jobs for need in job.depends_on)


@settings(max_examples=60, deadline=None)
@given(job_lists())
def test_closures_are_those_of_a_plain_search(jobs: list[GraphJob]) -> None:
    graph = WorkflowGraph.from_jobs(jobs)
    for job in jobs:
        found = graph.dependents([job.name])
        assert found == _closure(jobs, job.name)
        assert all(job.name in graph.dependencies([each]) for each in found)


@settings(max_examples=60, deadline=None)
@given(job_lists())
def test_the_critical_path_is_a_chain_that_takes_its_time(jobs: list[GraphJob]) -> None:
    by_name = {job.name: job for job in jobs}
    path = WorkflowGraph.from_jobs(jobs).critical_path()
    assert path.seconds == sum(by_name[name].seconds for name in path.jobs)
    assert all(first in by_name[second].depends_on for first, second in itertools.pairwise(path.jobs))
    assert path.seconds >= max(job.seconds for job in jobs)


def test_a_cycle_is_refused_and_named() -> None:
    with pytest.raises(BadInput, match="a cycle: a needs b needs a; remove one of these dependencies"):
        WorkflowGraph.from_jobs([GraphJob("a", ("b",)), GraphJob("b", ("a",))])


def test_an_unknown_dependency_is_refused_and_named() -> None:
    with pytest.raises(BadInput, match=r"job 'b' needs 'prepair', which is no job.*prepare"):
        WorkflowGraph.from_jobs([GraphJob("prepare"), GraphJob("b", ("prepair",))])


def test_two_jobs_of_one_name_are_refused() -> None:
    with pytest.raises(BadInput, match="job 'a' is there twice"):
        WorkflowGraph.from_jobs([GraphJob("a"), GraphJob("a")])


def test_one_job_too_many_is_refused() -> None:
    with pytest.raises(TooLarge, match="too many jobs: 100,001; the limit is 100,000"):
        WorkflowGraph.from_jobs(GraphJob(f"j{number}") for number in range(100_001))


def test_forty_diamonds_in_a_row_are_visited_once_each() -> None:
    jobs = [GraphJob("top0")]
    for number in range(40):
        jobs += [
            GraphJob(f"left{number}", (f"top{number}",)),
            GraphJob(f"right{number}", (f"top{number}",)),
            GraphJob(f"top{number + 1}", (f"left{number}", f"right{number}")),
        ]
    assert len(WorkflowGraph.from_jobs(jobs).dependents(["top0"])) == 120
