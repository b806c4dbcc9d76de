"""Spec plan: a spec with its parameters filled in: every step by its id, what it needs, and what needs it.

Invariants: the same spec and parameters always give the same plan, in the same order; everything is linear in steps and
edges. How many there will be is computed before any is made, so a small file can not make a large plan. A step stands
for as many steps as the parameters in its id have values; elsewhere a parameter of several values means "all of them"
(in `needs` and references) or is a mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import msgspec

from buoy.core.limits import SPEC_EDGES_MAX, SPEC_STEPS_MAX
from buoy.core.spec import graph
from buoy.core.spec.model import Parameter, Place, Scalar, Spec, SpecStep
from buoy.core.spec.problems import LineOf, Problems, names, no_lines
from buoy.core.spec.reader import is_id
from buoy.core.spec.references import Use, is_plain, module_problems, uses_of
from buoy.core.spec.template import Bound, Param, Segment, fill_segment, parse, segment_of
from buoy.core.spec.values import chosen_parameters


class Planned(msgspec.Struct, frozen=True):
    """One step of a plan. `bound` has the values of the parameters that it may use."""

    id: str
    step: SpecStep
    bound: dict[str, Scalar]


class SpecPlan:
    """What a run of a spec is to do."""

    def __init__(self, spec: Spec, parameters: dict[str, Parameter]) -> None:
        self.spec = spec
        self.parameters = parameters
        self.steps: list[Planned] = []
        self.index: dict[str, int] = {}
        self.needs: list[tuple[int, ...]] = []
        self.after: list[list[int]] = []
        # Files that no step makes, each with the place where it is first named.
        self.outside: dict[str, Place] = {}
        # Steps whose results another step refers to; the others need not stay in memory.
        self.referred: set[str] = set()
        self.several = {each.name: each.values for each in parameters.values() if len(each.values) > 1}
        self.singles: dict[str, Scalar] = {
            each.name: each.values[0] for each in parameters.values() if len(each.values) == 1
        }

    def rows(self, wanted: list[str]) -> Iterator[dict[str, Scalar]]:
        """The values of these parameters, combined: each with each, or side by side."""
        if self.spec.combine == "zip":
            # Side by side, all parameters move together, also those that are not named.
            for values in zip(*self.several.values(), strict=True):
                yield dict(zip(self.several, values, strict=True))
        else:
            for values in itertools.product(*(self.several[name] for name in wanted)):
                yield dict(zip(wanted, values, strict=True))

    def ids(self, segment: Segment, bound: Bound) -> list[str]:
        """The step ids that a name with parameters means here: one, or all of those that fit."""
        free = self.free(segment, bound)
        if not free:
            return [fill_segment(segment, bound)]
        return list(dict.fromkeys(fill_segment(segment, {**bound, **row}) for row in self.rows(free)))

    def width(self, segment: Segment, bound: Bound) -> int:
        """How many ids that would be at most, without making them."""
        return self.count_rows(self.free(segment, bound))

    def count_rows(self, wanted: list[str]) -> int:
        sizes = [len(self.several[name]) for name in wanted]
        return math.prod(sizes) if self.spec.combine == "product" else max(sizes, default=1)

    def free(self, segment: Segment, bound: Bound) -> list[str]:
        """The parameters of several values that are not settled here."""
        return list(dict.fromkeys(each.name for each in segment if isinstance(each, Param) and each.name not in bound))

    def descendants(self, ids: list[str]) -> set[str]:
        """All steps that need one of these, directly or not."""
        found = graph.descendants(self.after, [self.index[each] for each in ids])
        return {self.steps[each].id for each in found}


def plan_spec(
    spec: Spec,
    given: Mapping[str, object],
    file: str = "the spec",
    line_of: LineOf = no_lines,
    problems: Problems | None = None,
) -> SpecPlan:
    """The plan of a run with these parameters, or `BadSpec` with everything that is wrong.

    `problems` has what was found wrong with the spec before; one error reports all of it.
    """
    problems = problems or Problems()
    plan = SpecPlan(spec, chosen_parameters(spec, given))
    if not _zips(plan, problems):
        problems.check(file, line_of)
    families = _expand(plan, problems)
    if families is not None:
        _Linker(plan, families, problems).link()
    plan.after = graph.dependents(plan.needs)
    if len(plan.needs) == len(plan.steps):
        _check_order(plan, problems)
    problems.check(file, line_of)
    return plan


def _zips(plan: SpecPlan, problems: Problems) -> bool:
    if plan.spec.combine == "zip" and len({len(values) for values in plan.several.values()}) > 1:
        sizes = ", ".join(f"{name} has {len(values)}" for name, values in plan.several.items())
        problems.add(("combine",), f"zip wants parameters of the same number of values: {sizes}")
        return False
    return True


def _expand(plan: SpecPlan, problems: Problems) -> list[range] | None:
    """Makes the steps of every entry. None: too many."""
    families: list[range] = []
    for number, step in enumerate(plan.spec.steps):
        place, first = ("steps", number, "id"), len(plan.steps)
        if "{" not in step.id and first < SPEC_STEPS_MAX:  # quick: a graph may have 100,000 of them
            _add_step(plan, Planned(step.id, step, plan.singles), place, problems)
            families.append(range(first, first + 1))
            continue
        template = parse(step.id)
        if any(template.refs()):
            problems.add(place, "an id may hold parameters, but no references")
        elif unknown := [name for name in template.params() if name not in plan.parameters]:
            problems.add(place, f"there is no parameter {unknown[0]!r}; {names(plan.parameters, unknown[0])}")
        else:
            wanted = list(dict.fromkeys(name for name in template.params() if name in plan.several))
            count = len(plan.steps) + plan.count_rows(wanted)
            if count > SPEC_STEPS_MAX:
                problems.add(place, f"the parameters make {count:,} steps or more, the limit is {SPEC_STEPS_MAX:,}")
                return None
            for row in plan.rows(wanted) if wanted else ({},):
                bound = {**plan.singles, **row} if row else plan.singles
                _add_step(plan, Planned(template.fill(bound), step, bound), place, problems)
        families.append(range(first, len(plan.steps)))
    return families


def _add_step(plan: SpecPlan, made: Planned, place: Place, problems: Problems) -> None:
    if not is_id(made.id):
        text = (
            f"step id {made.id[:60]!r} is not allowed: expected letters, digits, '_' and '-', beginning with a letter"
        )
        problems.add(place, text)
    elif made.id in plan.index:
        problems.add(place, f"step {made.id!r} is there twice; an id must be the only one of its kind")
    plan.index[made.id] = len(plan.steps)
    plan.steps.append(made)


class _Linker:
    """Finds the edges: needs, references, files, and the order of a plain list."""

    def __init__(self, plan: SpecPlan, families: list[range], problems: Problems) -> None:
        self._plan = plan
        self._families = families
        self._problems = problems
        self._edges: list[list[int]] = [[] for _ in plan.steps]
        self._makers: dict[str, int] = {}
        self._count = 0

    def link(self) -> None:
        plan, steps = self._plan, self._plan.spec.steps
        linear = not any(step.needs is not None or step.inputs or step.outputs for step in steps)
        self._find_makers()
        for number, step in enumerate(steps):
            family = self._families[number]
            if not self._link_plain_needs(number, step, family) or not is_plain(step):
                for use in uses_of(step, ("steps", number)):
                    self._link_use(use, step, family)
                for place, text in module_problems(step, ("steps", number)):
                    self._problems.add(place, text)
                self._link_inputs(number)
            if linear and number:
                before = self._families[number - 1]
                if self._has_room(len(before) * len(family), ("steps", number)):
                    for node in family:
                        self._edges[node].extend(before)
        self._check_result()
        self._check_actions()
        plan.needs = [tuple(dict.fromkeys(edges)) for edges in self._edges]

    def _link_plain_needs(self, number: int, step: SpecStep, family: range) -> bool:
        """Needs that name one step each, whatever the parameters. Whether all of them do."""
        index = self._plan.index
        plain = [text for text in step.needs or () if "{" not in text]
        found = [index[text] for text in plain if text in index]
        if len(found) < len(plain):
            for place, text in enumerate(step.needs or ()):
                if "{" not in text and text not in index:
                    self._problems.add(
                        ("steps", number, "needs", place), f"there is no step {text!r}; {names(index, text)}"
                    )
        if self._has_room(len(found) * len(family), ("steps", number, "needs")):
            for node in family:
                self._edges[node].extend(found)
        return len(plain) == len(step.needs or ())

    def _has_room(self, count: int, place: Place) -> bool:
        """Whether so many more dependencies may be made. The first that are too many are a problem."""
        before, self._count = self._count, self._count + count
        if before <= SPEC_EDGES_MAX < self._count:
            text = f"{self._count:,} dependencies, the limit is {SPEC_EDGES_MAX:,}; put a step between the groups"
            self._problems.add(place, text)
        return self._count <= SPEC_EDGES_MAX

    def _link_use(self, use: Use, step: SpecStep, family: range) -> None:
        """One template of an entry: its parameters must be known, its steps there."""
        plan = self._plan
        if unknown := [name for name in use.params if name not in plan.parameters]:
            text = f"there is no parameter {unknown[0]!r}; {names(plan.parameters, unknown[0])}"
            self._problems.add(use.place, f"{text}; a brace of its own is written '\\{{'")
            return
        if not family:
            return
        bound = plan.steps[family[0]].bound
        if loose := [name for name in use.settled if name not in bound]:
            advice = f"write it into the id, such as {step.id}_{{{loose[0]}}}"
            self._problems.add(
                use.place, f"{{{loose[0]}}} has several values, and the step's id does not say which; {advice}"
            )
            return
        if use.step is None or not self._has_room(plan.width(use.step, bound) * len(family), use.place):
            return
        for node in family:
            if not self._link_ids(node, plan.ids(use.step, plan.steps[node].bound), use):
                return

    def _link_ids(self, node: int, wanted: list[str], use: Use) -> bool:
        plan = self._plan
        for each in wanted:
            found = plan.index.get(each)
            if found is None:
                self._problems.add(use.place, f"there is no step {each!r}; {names(plan.index, each)}")
                return False
            if use.refers:
                plan.referred.add(each)
            self._edges[node].append(found)
        return True

    def _find_makers(self) -> None:
        for number, step in enumerate(self._plan.spec.steps):
            for place, node, path in self._files(number, step.outputs, "outputs"):
                other = self._makers.setdefault(path, node)
                if other != node:
                    both = f"{self._plan.steps[other].id} and {self._plan.steps[node].id}"
                    self._problems.add(place, f"file {path!r} is made by two steps: {both}")

    def _link_inputs(self, number: int) -> None:
        step = self._plan.spec.steps[number]
        for place, node, path in self._files(number, step.inputs, "inputs"):
            maker = self._makers.get(path)
            if maker is None:
                self._plan.outside.setdefault(path, place)
            else:
                self._edges[node].append(maker)

    def _files(self, number: int, paths: tuple[str, ...], key: str) -> Iterator[tuple[Place, int, str]]:
        """Each file of an entry's steps. An input with free parameters means all of them."""
        plan = self._plan
        for position, text in enumerate(paths):
            place, template = ("steps", number, key, position), parse(text)
            if any(name not in plan.parameters for name in template.params()) or any(template.refs()):
                continue  # reported by `_link_use`
            segment = segment_of(template)
            family = self._families[number]
            width = plan.width(segment, plan.steps[family[0]].bound) if family else 0
            if key == "inputs" and not self._has_room(width * len(family), place):
                return
            for node in family:
                bound = plan.steps[node].bound
                if key == "outputs" and plan.free(segment, bound):
                    break  # reported by `_link_use`
                for path in plan.ids(segment, bound):
                    yield place, node, path

    def _check_result(self) -> None:
        for use in uses_of(SpecStep(id="result", given={"result": self._plan.spec.result}), ()):
            self._check_names(("result",), (*use.params, *use.settled), use.step, refers=True)

    def _check_actions(self) -> None:
        for number, action in enumerate(self._plan.spec.actions):
            for position, text in enumerate(action.jobs):
                place = ("actions", number, "jobs", position)
                self._check_names(place, tuple(parse(text).params()), segment_of(parse(text)))

    def _check_names(
        self, place: Place, params: tuple[str, ...], step: Segment | None, *, refers: bool = False
    ) -> None:
        """A name of steps that stands outside of any step."""
        plan = self._plan
        if unknown := [name for name in params if name not in plan.parameters]:
            self._problems.add(place, f"there is no parameter {unknown[0]!r}; {names(plan.parameters, unknown[0])}")
        elif step is not None and plan.width(step, plan.singles) > SPEC_STEPS_MAX:
            self._problems.add(place, f"a reference to more than {SPEC_STEPS_MAX:,} steps")
        elif step is not None:
            for each in plan.ids(step, plan.singles):
                if refers:
                    plan.referred.add(each)
                if each not in plan.index:
                    self._problems.add(place, f"there is no step {each!r}; {names(plan.index, each)}")
                    break


def _check_order(plan: SpecPlan, problems: Problems) -> None:
    if graph.topological(plan.needs, plan.after) is not None:
        return
    circle = [plan.steps[node] for node in graph.cycle(plan.needs)]
    number = next(number for number, step in enumerate(plan.spec.steps) if step is circle[0].step)
    problems.add(("steps", number), graph.cycle_text([each.id for each in circle]))
