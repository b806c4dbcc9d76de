"""Workflow files: finds workflows in a Python file or an importable module.

Invariants: a file is executed once per process, under a name that depends on its path only. An error inside of it
becomes one line with the place.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from buoy.engine.authoring.definitions import Registry, Step, Workflow
from buoy.errors import BadInput, UnknownWorkflow

AnyWorkflow = Workflow[..., Any]


def find_workflow(target: str) -> AnyWorkflow:
    """The workflow that `FILE.py:NAME`, `package.module:NAME` or a file with one workflow means."""
    source, name = _split(target)
    module = load(source)
    found = _workflows(module)
    names = Registry()
    for each in found.values():
        names.add(each)  # refuses two of one name
    if name is not None:
        return _named(module, found, name, source)
    own = {each.name: each for each in found.values() if each.fn.__module__ == module.__name__}
    only = {each.name: each for each in found.values()}
    for choice in (only, own):
        if len(choice) == 1:
            return next(iter(choice.values()))
    if not found:
        raise _none_there(source)
    raise UnknownWorkflow(f"{source} has several workflows: {_names(found)}; name one as {source}:NAME")


def load_all(sources: tuple[str, ...]) -> Registry:
    """All workflows of those files and modules. A file without any is refused: a typo must not make an idle worker."""
    registry = Registry()
    for source in sources:
        module = load(source)
        found = [*_workflows(module).values(), *_remote_steps(module)]
        if not found:
            raise _none_there(source)
        for workflow in found:
            registry.add(workflow)
    return registry


def load(source: str) -> ModuleType:
    """The file or module, executed."""
    if source.endswith(".py") or "/" in source:
        return _load_file(Path(source))
    return _import_module(source)


def _split(target: str) -> tuple[str, str | None]:
    source, colon, name = target.rpartition(":")
    return (source, name) if colon and source and name else (target.rstrip(":"), None)


def _workflows(module: ModuleType) -> dict[str, AnyWorkflow]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Workflow)}


def _remote_steps(module: ModuleType) -> list[AnyWorkflow]:
    """What a worker needs to run steps that have a queue."""
    steps = [value for value in vars(module).values() if isinstance(value, Step) and value.queue is not None]
    return [step.remote for step in steps]


def _named(module: ModuleType, found: dict[str, AnyWorkflow], name: str, source: str) -> AnyWorkflow:
    by_own_name = next((each for each in found.values() if each.name == name), None)
    workflow = found.get(name) or by_own_name
    if workflow is not None:
        return workflow
    if any(name in (place, each.name) for place, each in vars(module).items() if isinstance(each, Step)):
        have = f"name a workflow of {source}: {_names(found)}" if found else "call it in a workflow and name that"
        raise UnknownWorkflow(f"{name} is a step, and only workflows can be started; {have}")
    if not found:
        raise _none_there(source)
    raise UnknownWorkflow(f"{source} has no workflow {name!r}; it has {_names(found)}")


def _none_there(source: str) -> UnknownWorkflow:
    return UnknownWorkflow(f"{source} has no workflow; mark a function with @buoy.workflow")


def _names(found: dict[str, AnyWorkflow]) -> str:
    return ", ".join(sorted({each.name for each in found.values()}))


def _load_file(path: Path) -> ModuleType:
    path = path.absolute()
    if not path.is_file():
        raise BadInput(f"no such file: {path}; correct the path")
    name = _module_name(path)
    known = sys.modules.get(name)
    if known is not None:
        return known
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is not a Python file; name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    # Before it is executed: dataclasses and type hints look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadInput(_what_went_wrong(str(path), error, path.parent)) from error
    return module


def _module_name(path: Path) -> str:
    """The stem of the file, so that siblings can import it; a generated name if the stem is taken."""
    stem = path.stem
    known = sys.modules.get(stem)
    mine = known is not None and getattr(known, "__file__", None) == str(path)
    taken = stem in sys.stdlib_module_names or stem == "buoy" or (known is not None and not mine)
    if stem.isidentifier() and not taken:
        return stem
    return f"buoy_file_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def _import_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadInput(f"there is no file or module {name!r} here; name a file as {name}.py") from error
        raise BadInput(_what_went_wrong(name, error, Path.cwd())) from error
    except (Exception, SystemExit) as error:
        raise BadInput(_what_went_wrong(name, error, Path.cwd())) from error


def _what_went_wrong(source: str, error: BaseException, folder: Path) -> str:
    """One line: the place in the user's own code, the class and the message."""
    what = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return f"{error.filename or source}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(str(folder))]
    place = f"{own[-1].filename}:{own[-1].lineno}" if own else source
    # Only a relative import without a package names no module.
    if type(error) is ImportError and error.name is None:
        what += "; name it as a module of its package instead: package.module"
    elif isinstance(error, ModuleNotFoundError):
        what += f"; install it for {sys.executable}, or correct the name"
    elif isinstance(error, SystemExit):
        what += '; a file of workflows is imported: put what ends the process under `if __name__ == "__main__":`'
    return f"{place}: {what}".replace("\n", " ")
