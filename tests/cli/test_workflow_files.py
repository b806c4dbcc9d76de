"""Finding workflows in files and modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from buoy.errors import BadInput, UnknownWorkflow
from buoy.operations.targets.workflow_files import find_workflow, load, load_all

ONE = "import buoy\n@buoy.workflow{}\ndef {}(x: int) -> int:\n    return x\n"


@pytest.fixture(autouse=True)
def modules_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_file_with_one_workflow_needs_no_name(tmp_path: Path) -> None:
    file = tmp_path / "only.py"
    file.write_text(ONE.format("", "single"))
    assert find_workflow(str(file)).name == "single"
    assert find_workflow(f"{file}:single") is find_workflow("only.py")


def test_a_workflow_is_found_by_both_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "named.py").write_text(ONE.format("(name='nightly-report')", "report"))
    assert find_workflow("named.py:report") is find_workflow("named.py:nightly-report")


def test_imported_workflows_do_not_make_a_file_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "library_a.py").write_text(ONE.format("", "imported"))
    (tmp_path / "user_a.py").write_text("from library_a import imported\n" + ONE.format("", "own"))
    assert find_workflow("user_a.py").name == "own"
    assert load_all(("user_a.py",)).names() == ("imported", "own")


def test_the_version_does_not_depend_on_the_place(tmp_path: Path) -> None:
    versions = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "same.py"
        file.write_text(ONE.format("", "flow"))
        versions.add(find_workflow(str(file)).version)
    assert len(versions) == 1


def test_a_file_may_bear_the_name_of_a_standard_module(tmp_path: Path) -> None:
    file = tmp_path / "email.py"
    file.write_text("import email.mime\n" + ONE.format("", "send"))
    with pytest.raises(BadInput, match="email"):
        # Its own folder comes first, so that it hides the standard module from itself, as it would with `python`.
        del sys.modules["email"]
        load(str(file))
    file.write_text(ONE.format("", "send"))
    assert find_workflow(str(file)).name == "send"


def test_a_module_of_a_package_is_found_by_its_dotted_name(tmp_path: Path) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "steps.py").write_text("FACTOR = 2\n")
    (package / "flows.py").write_text("from . import steps\n" + ONE.format("", "flow"))
    assert find_workflow("some_package.flows:flow").name == "flow"


def test_dataclasses_of_a_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport buoy\n"
        "@dataclass\nclass Order:\n    item: str\n"
        "@buoy.workflow\ndef flow(order: Order) -> str:\n    return order.item\n"
    )
    workflow = find_workflow("typed.py")
    assert "order" in workflow.arguments.hints


def test_two_different_workflows_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(ONE.format("", "flow"))
    (tmp_path / "second.py").write_text(ONE.format("", "flow") + "    # not a comment\n".replace("#", "x ="[:0] + "#"))
    (tmp_path / "third.py").write_text(ONE.format("", "flow").replace("return x", "return x + 1"))
    assert load_all(("first.py", "second.py")).names() == ("flow",)
    with pytest.raises(BadInput, match="two different workflows are named 'flow'"):
        load_all(("first.py", "third.py"))


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(ONE.format("", "left") + ONE.format("", "right"))
    with pytest.raises(UnknownWorkflow, match="it has left, right"):
        find_workflow("pair.py:middle")
    with pytest.raises(UnknownWorkflow, match="several workflows"):
        find_workflow("pair.py")


def test_a_file_with_two_of_one_name_gives_neither(tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    file.write_text(
        "import buoy\n"
        "@buoy.workflow(name='flow')\nasync def one() -> int:\n    return 1\n"
        "@buoy.workflow(name='flow')\nasync def two() -> int:\n    return 2\n"
    )
    with pytest.raises(BadInput, match="two different workflows are named 'flow'"):
        find_workflow(f"{file}:one")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("import buoy_has_no_such_module\n", "install it for "),
        ("import sys\nsys.exit(3)\n", 'put what ends the process under `if __name__ == "__main__":`'),
    ],
)
def test_what_stops_a_file_from_being_imported_is_told_with_a_remedy(text: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(text)
    with pytest.raises(BadInput) as caught:
        load("stopped.py")
    assert advice in str(caught.value) and "stopped.py:" in str(caught.value)
