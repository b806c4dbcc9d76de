"""Spec scope: what a step of a run can see when it starts: parameters, results of steps before it, its own modules.

Invariant: a value depends on the log alone, so a replay finds the same arguments again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from buoy.core.log.questions import Json, Question
from buoy.core.spec.command import fitted_command, quoted_command
from buoy.core.spec.condition import holds
from buoy.core.spec.model import Action, question_of
from buoy.core.spec.plan import Planned, SpecPlan
from buoy.core.spec.template import Bound, Param, Ref, dig, fill_segment, parse, render, render_all, text_of


class PlanScope:
    """What one step can refer to. `results` has those of referenced steps; a skipped step has none."""

    def __init__(
        self,
        plan: SpecPlan,
        bound: Bound,
        run_id: str,
        results: Mapping[str, Json],
        modules: Mapping[str, Json] | None = None,
    ) -> None:
        self._plan = plan
        self._bound = bound
        self._run_id = run_id
        self._results = results
        self._modules = modules or {}

    def holds(self, condition: str) -> bool:
        """Whether a step's condition is true."""
        return holds(condition, self._bound, self.lookup)

    def command(self, action: Action) -> tuple[str, dict[str, str]]:
        """The shell command, and the variables that have its values."""
        assert action.run is not None
        return fitted_command(action.run, self._part_text, action.given)

    def former_command(self, action: Action) -> str:
        """The shell command in the form that older logs have."""
        assert action.run is not None
        return quoted_command(action.run, self._part_text)

    def _part_text(self, part: Param | Ref) -> str:
        return part.text(self._bound) if isinstance(part, Param) else text_of(self.lookup(part))

    def inputs(self, action: Action) -> dict[str, Json]:
        """What stands under `with`, filled in."""
        return {name: self.value(cast(Json, value)) for name, value in action.given.items()}

    def question(self, action: Action) -> Question:
        assert action.ask is not None
        ask = action.ask
        detail = None if ask.detail is None else self._text(ask.detail)
        options = tuple(each for text in ask.options for each in self._options(text))
        return question_of(ask, self._text(ask.title), options, detail)

    def _options(self, text: str) -> list[str]:
        """One option; a list gives one option per item, a skipped step gives none."""
        value = render(parse(text), self._bound, self.lookup)
        found = value if isinstance(value, list) else [] if value is None else [value]
        return [text_of(each) for each in found]

    def value(self, value: Json) -> Json:
        return render_all(value, self._bound, self.lookup)

    def files(self, paths: tuple[str, ...]) -> list[str]:
        """File names, filled in; a name with free parameters means all of them."""
        return [path for text in paths for path in self._plan.ids(parse(text).parts, self._bound)]  # type: ignore[arg-type]

    def _text(self, text: str) -> str:
        return text_of(render(parse(text), self._bound, self.lookup))

    def lookup(self, ref: Ref) -> Json:
        head, rest = ref.path[0], tuple(fill_segment(each, self._bound) for each in ref.path[1:])
        match ref.root:
            case "run":
                return self._run_id
            case "parameters":
                return dig(dict(self._bound), (fill_segment(head, self._bound), *rest), "parameters")
            case "modules":
                name = fill_segment(head, self._bound)
                return dig(self._modules.get(name), rest, f"modules.{name}")
            case _:
                found = [self._result(each, rest) for each in self._plan.ids(head, self._bound)]
                return found if self._plan.free(head, self._bound) else found[0]

    def _result(self, step: str, path: tuple[str, ...]) -> Json:
        # Nothing is in the result of a step that was skipped; that is no mistake of who refers to it.
        return dig(self._results[step], path, f"steps.{step}") if step in self._results else None


def scope_of(
    plan: SpecPlan,
    planned: Planned,
    run_id: str,
    results: Mapping[str, Json],
    modules: Mapping[str, Json] | None = None,
) -> PlanScope:
    """The sight of that step."""
    return PlanScope(plan, planned.bound, run_id, results, modules)
