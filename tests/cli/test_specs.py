"""Specs on the command line: validate, run, start, worker, logs; and the example of the documentation."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
import yaml

from buoy.core.spec.reader import spec_schema
from buoy.engine.spec.source import SpecSource
from buoy.engine.spec.workflow import spec_of

from .conftest import Buoy, Spawn, until

ROOT = Path(__file__).parents[2]
NIGHTLY = ROOT / "examples" / "nightly.yaml"


@pytest.fixture
def spec(buoy: Buoy) -> Path:
    path = buoy.folder / "s.yaml"
    path.write_text(
        "name: small\nparameters: {k: 1:2}\nsteps:\n"
        "  - {id: 'a_{k}', run: 'echo out {k}; echo {k} > $BUOY_RESULT_FILE'}\n"
        "  - {id: q, ask: {title: 'Go?', options: [yes, no]}}\n"
        "  - {id: b, run: 'echo end; exit 3', when: \"steps.q == 'no'\"}\n"
        "result: '{{ steps.a_{k}.result }}'\n"
    )
    return path


def test_the_example_runs_to_its_end(buoy: Buoy) -> None:
    assert buoy.json("run", str(NIGHTLY), "--id", "n1")["result"] == {"scores": [10, 20, 30]}
    assert buoy("logs", "n1", "report").stdout == "scores [10,20,30]\n"
    assert buoy.json("run", str(NIGHTLY), "--param", "k=5", "--param", "publish=false")["result"] == {"scores": 50}


def test_workers_need_no_file_to_drive_a_spec(buoy: Buoy, spec: Path) -> None:
    assert (
        "it is queued, but no worker is alive; start one: buoy worker" in buoy("start", str(spec), "--id", "s1").stderr
    )
    told = buoy("worker", "--until-idle").stdout
    assert "drives specs of" in told
    assert buoy.json("show", "s1")["document"]["status"] == "awaiting_input"
    buoy("answer", "s1", "yes")
    buoy("worker", "--until-idle")
    assert json.loads(buoy("result", "s1").stdout) == [1, 2]


def test_a_worker_without_specs_takes_none(buoy: Buoy, spec: Path) -> None:
    buoy("start", str(spec), "--id", "s1")
    buoy("worker", str(Path(__file__).with_name("flows.py")), "--no-specs", "--until-idle")
    assert buoy.json("show", "s1")["document"]["status"] == "pending"
    assert "no worker is alive" in buoy("why", "s1").stdout


def test_a_failed_command_is_told_with_its_output(buoy: Buoy, spec: Path) -> None:
    buoy("start", str(spec), "--id", "s1")
    buoy("worker", "--until-idle")
    buoy("answer", "s1", "no")
    buoy("worker", "--until-idle")
    error = buoy("result", "s1", code=1).stderr
    assert "ExitCode: b#1 failed: exit code 3" in error


def test_logs_are_shown_by_step_and_listed(buoy: Buoy, spec: Path) -> None:
    buoy("start", str(spec), "--id", "s1")
    buoy("worker", "--until-idle")
    assert buoy("logs", "s1", "a_1").stdout == "out 1\n"
    both = buoy("logs", "s1").stdout
    assert "==> a_1#1, attempt 1 <==\nout 1\n" in both
    assert "==> a_2#1, attempt 1 <==\nout 2\n" in both
    listed = buoy.json("logs", "s1")["logs"]
    assert {(each["leaf"], each["attempt"], each["bytes"]) for each in listed} == {("a_1#1", 1, 6), ("a_2#1", 1, 6)}
    assert "there is no log of step 'zz'" in buoy("logs", "s1", "zz", code=2).stderr
    assert "no run 'nope'" in buoy("logs", "nope", code=2).stderr


def test_a_bad_spec_is_told_whole_and_nothing_is_stored(buoy: Buoy) -> None:
    path = buoy.folder / "bad.yaml"
    path.write_text("name: x\nsteps:\n  - {id: a, run: 'true', needs: [zz]}\n  - {id: a, run: 'true', retries: x}\n")
    for command in ("validate", "run", "start"):
        told = buoy(command, str(path), code=2).stderr
        assert f"{path}:3: steps[0].needs[0]: there is no step 'zz'" in told
        assert f"{path}:4: steps[1].id: step 'a' is there twice" in told
        assert f"{path}:4: steps[1].retries: expected a whole number" in told
    assert not (buoy.folder / "buoy.db").exists()
    found = buoy.json("validate", str(path), code=2)
    assert (found["ok"], found["count"]) == (False, 3)
    assert found["problems"][0] == {
        "file": str(path), "line": 3, "place": "steps[0].needs[0]", "text": "there is no step 'zz'; known: a",
    }  # fmt: skip


def test_the_schema_of_specs_is_printed_for_editors(buoy: Buoy) -> None:
    assert buoy.json("spec-schema") == json.loads(buoy("spec-schema").stdout) == spec_schema()


def test_validate_says_what_a_run_would_be(buoy: Buoy, spec: Path) -> None:
    found = buoy.json("validate", str(spec), "--param", "k=1:5")
    assert (found["ok"], found["name"], found["steps"], found["edges"], found["calls"]) == (True, "small", 7, 6, [])
    assert "is sound: small, 4 steps" in buoy("validate", str(spec)).stdout


def test_calls_are_allowed_by_option_or_configuration(buoy: Buoy) -> None:
    path = buoy.folder / "c.yaml"
    path.write_text(
        "name: c\nsteps: [{id: a, call: 'tests.cli.spec_calls:double', with: {x: 21}}]\nresult: '{{ steps.a }}'\n"
    )
    assert "is not allowed here (no calls are allowed)" in buoy("run", str(path), code=2).stderr
    assert buoy.json("run", str(path), "--allow-calls", "tests.cli")["result"] == 42
    (buoy.folder / "buoy.toml").write_text('[worker]\ncalls = ["tests.cli"]\n')
    buoy("start", str(path), "--id", "c1")
    buoy("worker", "--until-idle")
    assert buoy("result", "c1").stdout.strip() == "42"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "SPEC", "--arg", "a=1"], "parameters of a spec are given with --param"),
        (["run", "SPEC", "--param", "k"], "invalid --param 'k'; write NAME=VALUE"),
        (["run", "SPEC", "--param", "zz=1"], "small has no parameter 'zz'"),
        (["run", "flows.py:order", "--param", "k=1"], "--param is for spec files"),
        (["run", "no.yaml"], "no.yaml: the file: the file cannot be read: No such file"),
        (["validate", "no.json"], "cannot be read"),
    ],
)
def test_wrong_words_are_refused_with_what_to_do(buoy: Buoy, spec: Path, words: list[str], expected: str) -> None:
    found = buoy(*(str(spec) if word == "SPEC" else word for word in words), code=2)
    assert expected in found.stderr


def test_a_killed_run_of_a_spec_is_gone_on_with(buoy: Buoy, spawn: Spawn) -> None:
    path = buoy.folder / "k.yaml"
    ran = buoy.folder / "ran"
    path.write_text(
        f"name: k\nsteps:\n  - {{id: a, run: 'echo a >> {ran}'}}\n"
        f"  - id: b\n    run: |\n      echo b >> {ran}\n      test $(grep -c b {ran}) -gt 1 || sleep 100\n"
    )
    process = spawn("run", str(path), "--id", "k1")
    until(lambda: ran.exists() and "b" in ran.read_text(), process)
    process.send(signal.SIGKILL)
    process.wait()
    assert buoy.json("run", str(path), "--id", "k1")["status"] == "completed"
    assert ran.read_text() == "a\nb\nb\n"


def test_a_stopped_worker_gives_the_run_back_and_leaves_no_command(buoy: Buoy, spawn: Spawn) -> None:
    path, pid = buoy.folder / "k.yaml", buoy.folder / "pid"
    path.write_text(f"name: k\nsteps:\n  - {{id: a, run: 'echo $$ > {pid}; exec sleep 100'}}\n")
    buoy("start", str(path), "--id", "k1")
    process = spawn("worker", "--grace", "100ms")
    until(lambda: pid.exists() and pid.read_text(), process)
    process.send(signal.SIGTERM)
    assert process.wait() == 0, process.output()
    number = int(pid.read_text())
    stat = Path(f"/proc/{number}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    assert buoy.json("show", "k1")["document"]["status"] == "interrupted"


def test_logs_are_followed_until_the_run_ends(buoy: Buoy, spawn: Spawn) -> None:
    path, go = buoy.folder / "f.yaml", buoy.folder / "go"
    path.write_text(
        "name: f\nsteps:\n  - id: a\n    run: |\n      echo one\n"
        f"      while [ ! -e {go} ]; do sleep 0.05; done\n      echo two\n"
    )
    buoy("start", str(path), "--id", "f1")
    worker, reader = spawn("worker"), spawn("logs", "f1", "-f")
    until(lambda: "one" in reader.out.read_text(), worker)
    go.touch()
    assert reader.wait() == 0
    assert reader.out.read_text() == "==> a#1, attempt 1 <==\none\ntwo\n"


def test_every_spec_in_the_documentation_is_sound() -> None:
    text = (ROOT / "docs" / "specs.md").read_text()
    blocks = [yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    steps = [step for block in blocks if isinstance(block, list) for step in block]
    assert steps
    parameters = next(block["parameters"] for block in blocks if isinstance(block, dict) and "parameters" in block)
    whole = {"name": "docs", "parameters": parameters, "steps": [{"id": "gather", "run": "true"}, *steps]}
    spec_of(SpecSource("docs.json", json.dumps(whole)), calls=None)
