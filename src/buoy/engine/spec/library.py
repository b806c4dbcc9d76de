"""The library of specs: stored definitions as this runner can drive them.

Invariant: a run is driven by the definition that its log names, by hash; a runner that has not all functions of a spec
leaves its runs to others, at once, and says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from buoy.core.log import events as e
from buoy.engine.authoring.definitions import Workflow
from buoy.engine.spec.runtime import SpecKit
from buoy.engine.spec.workflow import SpecWorkflow, stored_workflow
from buoy.errors import BadInput, CorruptLog, NotAllowedHere
from buoy.ports.store import Store

_KEPT = 16


class DefinitionGone(CorruptLog):
    """Nothing that this run was bound to is in the store. Hold the run."""


class SpecLibrary:
    """Finds the spec of a run."""

    def __init__(self, store: Store, kit: SpecKit) -> None:
        self.kit = kit
        # Specs whose runs this process cannot drive, because it has not their functions.
        self.unable: set[str] = set()
        self._store = store
        self._known: OrderedDict[str, SpecWorkflow] = OrderedDict()

    async def of_log(self, name: str, log: Sequence[e.Event]) -> SpecWorkflow:
        """The spec that a run is bound to. `NotAllowedHere` if this process cannot drive it."""
        versions = [each.body.version for each in log if isinstance(each.body, e.WorkflowCreated | e.VersionBound)]
        if not versions:
            raise CorruptLog(f"the log of a run of {name} does not begin with workflow_created")
        # The one that it is bound to; if that is gone, the one that it began with may fit as well.
        for version in dict.fromkeys((versions[-1], versions[0])):
            found = self._known.get(version) or await self._read(version)
            if found is not None:
                self._check(found)
                return found
        raise DefinitionGone(
            f"definition {versions[-1] or 'of no version'} of {name} is not in {self._store.name}; "
            "start the spec there again, or bind the run to another one with `buoy migrate --spec`"
        )

    async def _read(self, version: str) -> SpecWorkflow | None:
        data = await self._store.definition(version) if version else None
        return None if data is None else self.keep(stored_workflow(data, version))

    def keep(self, workflow: SpecWorkflow) -> SpecWorkflow:
        """Keeps a spec at hand, and lets the one go that was not used for longest."""
        self._known[workflow.version] = workflow
        self._known.move_to_end(workflow.version)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return workflow

    def able(self, workflow: Workflow[..., Any]) -> bool:
        """Whether this process has all that it needs to drive runs of that workflow."""
        try:
            if isinstance(workflow, SpecWorkflow):
                self._check(workflow)
        except NotAllowedHere:
            return False
        return True

    def _check(self, workflow: SpecWorkflow) -> None:
        try:
            if workflow.spec.has_commands():
                self.kit.need_shell()
            for target in sorted(workflow.spec.calls()):
                self.kit.calls.find(target)
        except (NotAllowedHere, BadInput) as error:
            self.unable.add(workflow.name)
            raise NotAllowedHere(f"{workflow.name} is left to other runners: {error}") from error
