"""Places: where another interpreter finds the workflow under test."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from buoy.engine.authoring.definitions import Workflow
from buoy.engine.spec.workflow import SpecWorkflow, stored_workflow
from buoy.errors import BadInput


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A global of a module, or the stored form of a spec."""

    module: str = ""
    file: str = ""
    name: str = ""
    spec: bytes = b""
    version: str = ""


def place_of(workflow: Workflow[..., Any]) -> Place:
    """Refuses a workflow that only this process can have."""
    if isinstance(workflow, SpecWorkflow):
        return Place(spec=workflow.stored, version=workflow.version)
    module = sys.modules.get(workflow.fn.__module__)
    file = getattr(module, "__file__", None)
    name = next((name for name, value in vars(module).items() if value is workflow), None) if module else None
    if module is None or file is None or name is None:
        raise BadInput(
            f"a fresh process cannot import workflow {workflow.name}: it is not a global of a module with a file; "
            "define it at the top level of a module"
        )
    return Place(module=module.__name__, file=str(Path(file).absolute()), name=name)


def find_at(place: Place) -> Workflow[..., Any]:
    """The workflow there, its module imported into this interpreter."""
    if place.spec:
        return stored_workflow(place.spec, place.version)
    try:
        found = getattr(_module(place), place.name, None)
    except (Exception, SystemExit) as error:
        raise BadInput(f"a fresh process cannot import {place.file}: {type(error).__name__}: {error}") from error
    if not isinstance(found, Workflow):
        raise BadInput(f"a fresh process finds no workflow {place.name} in {place.file}; define it when it is imported")
    return found


def _module(place: Place) -> ModuleType:
    """By its name where that leads to its file; else from the file, as test runners and the command line do."""
    # A script must not run its own test again.
    name = "buoy_crashtest_main" if place.module == "__main__" else place.module
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin is not None and Path(spec.origin).absolute() == Path(place.file):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, place.file)
    if spec is None or spec.loader is None:
        raise BadInput(f"{place.file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it is executed: dataclasses and type hints look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
