"""The crash test of specs: commands really run, end with their process, and are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from buoy.cli.main import main
from buoy.engine.spec.workflow import load_spec
from buoy.testing import Options, Report, crash_test

SPEC = """\
name: nightly
parameters: {times: 2}
steps:
  - id: fetch
    run: echo "fetch" >> effects.txt
  - id: charge
    needs: [fetch]
    run: echo "$BUOY_IDEMPOTENCY_KEY" >> charges.txt && echo '{"ok":true}' > "$BUOY_RESULT_FILE"
  - id: review
    needs: [charge]
    modules:
      - {id: publish, ask: {title: "Publish?", options: ["yes", "no"]}}
      - {id: count, call: "spec_functions:twice", with: {number: "{{ parameters.times }}"}}
result: {charge: "{{ steps.charge.result }}", count: "{{ steps.review.count }}"}
"""
FUNCTIONS = """\
import buoy

def twice(number: int) -> int:
    buoy.idempotency_key()
    return 2 * number
"""
ANSWERS = [{"on": "Publish?", "answer": "yes", "after": "2d"}]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nightly.yaml").write_text(SPEC)
    (tmp_path / "spec_functions.py").write_text(FUNCTIONS)
    (tmp_path / "answers.json").write_text(json.dumps(ANSWERS))
    return tmp_path


def crashed(**options: Any) -> Report:
    spec = load_spec("nightly.yaml", calls=("spec_functions",), given={})
    stored = spec.arguments.encode((), {})
    return crash_test(spec, stored, ANSWERS, Options(calls=("spec_functions",), **options))


def call(*words: str, code: int) -> Result:
    found = CliRunner().invoke(main, ["crashtest", "nightly.yaml", "--allow-calls", "spec_functions", *words])
    assert found.exit_code == code, f"{found.output}\n{found.exception!r}"
    assert "Traceback" not in found.output
    return found


def test_a_command_that_runs_twice_without_its_key_is_found_and_one_with_it_is_told() -> None:
    report = crashed()
    (finding,) = report.findings
    assert (finding.kind, finding.step) == ("repeated", "fetch")
    assert finding.what.startswith("The command of step fetch ran 2 times under one idempotency key")
    assert "$BUOY_IDEMPOTENCY_KEY" in finding.advice
    looks = {repeat.step: repeat.looks_at_key for repeat in report.repeats}
    assert looks == {"fetch": False, "charge": True, "count": True}
    assert report.reference.result == {"charge": {"ok": True}, "count": 4}
    assert report.virtual_s >= 2 * 86400


def test_every_write_of_a_spec_is_crashed_and_its_commands_really_ran(folder: Path) -> None:
    report = crashed(repeatable=["fetch"], cancels=False)
    assert report.ok
    phases = ("before", "after", "twice")
    seen = {(crash.number, crash.phase) for crash in report.crashes}
    assert seen == {(number, phase) for number in range(1, report.writes + 1) for phase in phases}
    keys = (folder / "charges.txt").read_text().split()
    assert set(keys) == {"crashtest/charge#1/0"}
    scenarios = 1 + len(report.crashes)
    again = sum(repeat.step == "charge" for repeat in report.repeats)
    assert again and len(keys) > scenarios - 2 * report.writes


def test_a_command_ends_with_its_process(folder: Path) -> None:
    """Of two that run side by side one is under way when the end of the other is written."""
    (folder / "nightly.yaml").write_text(
        "name: side-by-side\n"
        "steps:\n"
        '  - {id: first, run: "true"}\n'
        '  - {id: long, needs: [first], run: "echo >> begun.txt; sleep 0.5; echo >> done.txt"}\n'
        '  - {id: quick, needs: [first], run: "true"}\n'
    )
    report = crashed(cancels=False, allow=["repeated"])
    assert report.ok
    begun, done = ((folder / name).read_text().count("\n") for name in ("begun.txt", "done.txt"))
    assert begun > done, "those that were under way at a crash never came to their end"


@pytest.mark.parametrize("how", [("--store", "sqlite"), ("--real",)])
def test_specs_survive_on_a_store_on_disk_and_with_real_kills(how: tuple[str, ...]) -> None:
    words = ("--answers", "answers.json", "--repeatable", "fetch", "--max-crashes", "3", "--no-cancel", "--json", *how)
    found: dict[str, Any] = json.loads(call(*words, code=0).stdout)
    assert found["reference"] == {"status": "completed", "result": {"charge": {"ok": True}, "count": 4}}
    assert found["crashes"]


def test_parameters_are_given_by_name_and_stubs_keep_commands_from_running(folder: Path) -> None:
    words = ("--param", "times=21", "--answers", "answers.json", "--stub", 'fetch={"exit_code": 0}', "--no-cancel")
    shown = call(*words, code=0).stdout
    assert '"count":42' in shown.replace(" ", "")
    assert not (folder / "effects.txt").exists()


@pytest.mark.parametrize(("stub", "hint"), [("fecth", "'fetch'"), ("publsh", "known: fetch, charge, count")])
def test_a_stub_for_what_the_spec_has_not_or_only_asks_is_refused(folder: Path, stub: str, hint: str) -> None:
    found = call("--answers", "answers.json", "--stub", f"{stub}=1", code=2)
    assert f"there is no step {stub!r} to stub; " in found.stderr
    assert hint in found.stderr
    assert not (folder / "effects.txt").exists()


def test_arguments_of_code_are_refused_for_specs_and_the_other_way_round() -> None:
    assert "--param" in call("--arg", "times=2", code=2).output
    found = CliRunner().invoke(main, ["crashtest", "spec_functions.py:twice", "--param", "times=2"])
    assert found.exit_code == 2
    assert "--param is for spec files" in found.output


def test_a_function_that_is_not_allowed_is_refused_with_its_line() -> None:
    found = CliRunner().invoke(main, ["crashtest", "nightly.yaml", "--answers", "answers.json"])
    assert found.exit_code == 2
    assert "nightly.yaml:13" in found.output


def test_a_question_that_nobody_answers_is_told() -> None:
    assert "waits for ever, for: Publish?" in call(code=2).output
