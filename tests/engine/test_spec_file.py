"""Spec files: what is YAML to Buoy, and that every refusal names file and line."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from buoy.core.limits import SPEC_BYTES_MAX
from buoy.engine.spec.functions import SpecFunctions
from buoy.engine.spec.source import SpecSource
from buoy.engine.spec.workflow import load_spec
from buoy.errors import BadSpec


def refused(text: str, name: str = "f.yaml") -> str:
    with pytest.raises(BadSpec) as caught:
        SpecSource(name, text)
    return str(caught.value)


def test_the_rules_are_those_of_yaml_1_2() -> None:
    text = "{a: yes, b: no, c: on, d: 1:3, e: 2024-01-01, f: true, g: ~, h: 1e3, i: 0x1f, j: 012, k: '5', l: .5"
    assert SpecSource("f.yaml", text + ", m: -3, n: 1_0}").data == {
        "a": "yes", "b": "no", "c": "on", "d": "1:3", "e": "2024-01-01", "f": True, "g": None, "h": 1000.0,
        "i": "0x1f", "j": 12, "k": "5", "l": 0.5, "m": -3, "n": "1_0",
    }  # fmt: skip


def test_json_is_read_as_json() -> None:
    assert SpecSource("f.json", '{"a": [1, 2.5, null, true, "x"]}').data == {"a": [1, 2.5, None, True, "x"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "f.yaml:1: the file: the file is empty"),
        ("a: 1\na: 2\n", "f.yaml:2: the file: key 'a' is there twice"),
        ("a: [1\nb: 2\n", "f.yaml:2: the file: not YAML"),
        ("a: b: c\n", "f.yaml:1: the file: not YAML: mapping values are not allowed"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: the file: a second document begins here"),
        ("a: !!python/object/apply:os.system ['true']\n", "f.yaml:1: the file: tag "),
        ("a: !secret x\n", "tag '!secret' is not allowed"),
        ("? [a]\n: 1\n", "a key must be a text"),
        ("a: *b\n", "*b refers to nothing before it"),
        ("a: &a [*a]\n", "*a refers to nothing before it"),
        ("[" * 100 + "]" * 100, "nested more than 60 deep"),
        ("a: \t- b\n\x01", "not YAML"),
        ("a:\n\t- b\n", "; indent with spaces, not tabs"),
        ("a:\n  - b: 1\n   c: 2\n", "; look at the indentation"),
        ("a: 1\n  b: 2\n", "; look at the indentation"),
        ("run: echo rows: 7\n", "; put the value in quotes, or on lines of its own below `run: |`: it holds ': '"),
        ("- {id: a, run: echo b: c}\n", "; put the value in quotes: it holds ': '"),
        ("- {id: a}\n- run: echo 'rows: 7'\n", "f.yaml:2: the file: not YAML: mapping values are not allowed"),
        ("- {id: a}\n- run: echo 'rows: 7'\n", "; put the value in quotes, or on lines of its own below `run: |`"),
        (
            "run: {{ steps.a }}\n",
            "f.yaml:1: the file: a key must be a text; put a value that begins with '{' in quotes",
        ),
    ],
)
def test_what_is_no_spec_file_is_refused_with_its_line(text: str, expected: str) -> None:
    assert expected in refused(text)


def test_aliases_of_aliases_do_not_grow_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "aliases counted as often as they are used" in refused("\n".join(lines))


def test_bad_json_names_its_line(tmp_path: Path) -> None:
    assert refused('{"a": 1,\n "b": ]}', "f.json").startswith("f.json:2: ")


def test_problems_name_the_line_of_their_place(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: x\n\nsteps:\n  - id: a\n    run: 'true'\n    needs:\n      - a1\n      - b\n"
        "  - {id: b, run: 'true',\n     retries: -1}\n  - id: c\n    run: >\n      echo {q}\n"
    )
    with pytest.raises(BadSpec) as caught:
        load_spec(path)
    assert [(each.line, each.place) for each in caught.value.problems] == [
        (7, "steps[0].needs[0]"), (10, "steps[1].retries"), (12, "steps[2].run"),
    ]  # fmt: skip
    assert str(caught.value).startswith(f"{path}:7: ")


def test_a_file_that_is_missing_too_large_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="cannot be read: No such file"):
        load_spec(tmp_path / "no.yaml")
    large = tmp_path / "large.yaml"
    with large.open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    with pytest.raises(BadSpec, match=f"52,428,800 bytes, the limit is {SPEC_BYTES_MAX:,}"):
        load_spec(large)
    other = tmp_path / "other.yaml"
    other.write_bytes(b"name: \xff\xfe")
    with pytest.raises(BadSpec, match="expected UTF-8"):
        load_spec(other)


def test_an_input_file_that_nobody_makes_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: x\nsteps:\n  - {id: a, run: 'true', inputs: [given.txt]}\n")
    with pytest.raises(BadSpec, match=r"s.yaml:3: steps\[0\].inputs\[0\]: no step makes file 'given.txt'"):
        load_spec(path, given={"directory": str(tmp_path)})
    (tmp_path / "given.txt").touch()
    load_spec(path, given={"directory": str(tmp_path)})


FUNCTIONS = "tests.engine.spec_functions"


@pytest.mark.parametrize(
    ("step", "allowed", "expected"),
    [
        (f"call: '{FUNCTIONS}:value'", (), "is not allowed here (no calls are allowed)"),
        (f"call: '{FUNCTIONS}:value'", ("tests.engine.spec",), "is not allowed here (allowed: tests.engine.spec)"),
        (f"call: '{FUNCTIONS}:nothing'", ("tests",), "has no function 'nothing'"),
        ("call: 'tests.no_such:value'", ("tests",), "cannot be imported: ModuleNotFoundError"),
        (f"call: '{FUNCTIONS}:threaded'", ("tests",), "missing a required argument: 'x'"),
        (f"call: '{FUNCTIONS}:value'\n    with: {{y: 1}}", ("tests",), "unexpected keyword argument 'y'"),
        ("call: 'os:system'\n    with: {command: 'true'}", ("tests",), "call 'os:system' is not allowed here"),
    ],
)
def test_a_call_must_be_allowed_and_fit(tmp_path: Path, step: str, allowed: tuple[str, ...], expected: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(f"name: x\nsteps:\n  - id: a\n    {step}\n")
    with pytest.raises(BadSpec) as caught:
        load_spec(path, calls=SpecFunctions(allowed))
    assert expected in str(caught.value)
    assert str(caught.value).startswith(f"{path}:4: steps[0].call: ")


def test_broken_files_are_refused_and_never_break_the_reader(tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("examples", "nightly.yaml").read_text()
    path = tmp_path / "s.yaml"
    chance = random.Random(5)
    for _ in range(300):
        broken = list(text)
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(broken))
            broken[place : place + chance.randrange(3)] = chance.choice(
                ["{", "}", ":", "\n", " ", "-", "[", "'", "\t", "{{", "9"]
            )
        path.write_text("".join(broken))
        try:
            load_spec(path)
        except BadSpec as error:
            assert error.problems
