"""The JSON Schema of specs: it accepts whatever the reader accepts, and refuses what is wrong by its shape."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buoy.core.spec.problems import Problems
from buoy.core.spec.reader import read_spec, spec_schema
from buoy.engine.spec.source import SpecSource, read_source

from .test_spec_fuzz import SOUND, damaged, nonsense, paths
from .test_spec_problems import BAD

ROOT = Path(__file__).parents[2]
SCHEMA = spec_schema()
JUDGE = jsonschema.Draft7Validator(SCHEMA)
FILES = [each for each in ROOT.glob("*/**/*.yaml") if ".venv" not in each.parts]
PIECES = re.findall(r"```yaml\n(- .*?)```", (ROOT / "docs" / "specs.md").read_text(), re.DOTALL)
# Complaints about a shape: a key, a type, a bound, a pattern. All others need templates, conditions or other steps.
SHAPE = re.compile(
    r"[^ ]+( spec)?: (expected|unknown key|a step with modules|module id|.*is no name for|.*is not a dur)"
)
ONLY_THE_READER = ("steps[0].run: expected a text", "parameters.directory: expected one folder")
WRONG_SHAPES = [each for each in BAD if SHAPE.match(each[1]) and each[1] not in ONLY_THE_READER]


def read(data: object) -> int:
    problems = Problems()
    read_spec(data, problems)
    return problems.count


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.relative_to(ROOT).as_posix())
def test_every_spec_of_the_repository_fits_the_schema(file: Path) -> None:
    data = read_source(file).data
    assert read(data) == 0
    JUDGE.validate(data)


def test_the_steps_of_the_page_fit_the_schema() -> None:
    steps = [SpecSource("page", each).data for each in PIECES]
    assert steps
    for each in steps:
        assert read({"name": "page", "steps": each}) == 0
        JUDGE.validate({"name": "page", "steps": each})


@given(st.sampled_from(paths(SOUND)), nonsense)
@settings(max_examples=400)
def test_what_the_reader_accepts_the_schema_accepts(path: tuple[Any, ...], value: object) -> None:
    data = damaged(SOUND, path, value)
    if read(data) == 0:
        JUDGE.validate(data)


@pytest.mark.parametrize(("data", "expected"), WRONG_SHAPES, ids=[text[:60] for _, text in WRONG_SHAPES])
def test_a_wrong_shape_is_refused_by_the_schema_too(data: object, expected: str) -> None:
    assert not JUDGE.is_valid(data)


def test_most_kinds_of_problems_are_of_the_shape() -> None:
    assert len(WRONG_SHAPES) > 45


def test_every_key_says_what_it_means() -> None:
    keys = list(_keys(SCHEMA))
    assert len(keys) > 40
    assert [name for name, each in keys if not each.get("description")] == []


def _keys(schema: Any) -> Any:
    for name, each in schema.get("properties", {}).items():
        yield name, each
        yield from _keys(each)
    if isinstance(schema.get("items"), dict):
        yield from _keys(schema["items"])
