"""`buoy crashtest`: its output for people and for programs, and its exit codes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from buoy.cli.main import main

FLOWS = Path(__file__).with_name("flows.py")


def call(name: str, *words: str, code: int, fresh: bool = False) -> Result:
    """Without fresh processes, which take a second, unless they are what is tested."""
    target = name if ":" in name or "." in name else f"{FLOWS}:{name}"
    found = CliRunner().invoke(main, ["crashtest", target, *words, *([] if fresh else ["--no-fresh"])])
    assert found.exit_code == code, f"{found.output}\n{found.exception!r}"
    assert "Traceback" not in found.output
    return found


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "answers.yaml"
    file.write_text("- on: Ship it?\n  answer: true\n  after: 2d\n- on: signal packed\n  payload: 7\n  after: 1h\n")
    return str(file)


def test_entries_of_the_script_that_match_nothing_are_told(script: str) -> None:
    path = Path(script)
    path.write_text(path.read_text() + "\n- {on: Never asked, answer: 1}\n- {on: signal never, payload: 2}\n")
    shown = call("checkout", "--arg", "item=lamp", "--answers", script, code=0).stdout
    assert "(on: Never asked) matched nothing" in shown
    assert "(on: signal never) matched nothing" in shown
    found = json.loads(call("checkout", "--arg", "item=lamp", "--answers", script, "--json", code=0).stdout)
    assert len(found["unused"]) == 2


def test_a_right_workflow_is_told_to_be_right(script: str) -> None:
    shown = call("checkout", "--arg", "item=lamp", "--answers", script, code=0).stdout
    assert "✓ every crash was recovered from, with the same outcome" in shown
    assert "✗" not in shown
    assert "recovery took" in shown
    assert "step_started reserve#1" in shown


def test_findings_are_told_in_plain_words_with_what_to_do() -> None:
    shown = call("double_charge", code=1).stdout
    assert "✗ 1. A step acts more than once" in shown
    assert "What to do: hand buoy.idempotency_key()" in shown
    assert "Seen: before write 2" in shown
    row = next(line for line in shown.splitlines() if line.startswith("2 "))
    assert row.split("workflow_completed")[1].split()[:2] == ["✗", "✓"]


def test_the_order_of_a_set_is_found_without_real_processes() -> None:
    shown = call("by_set_order", "--max-crashes", "1", fresh=True, code=1).stdout
    assert "✗ 1. The code does not repeat itself" in shown
    assert "Seen: in a fresh process, with another hash seed" in shown


def test_json_has_everything() -> None:
    found: dict[str, Any] = json.loads(call("by_chance", "--json", "--seed", "4", code=1).stdout)
    assert found["ok"] is False
    assert found["seed"] == 4
    assert {each["kind"] for each in found["findings"]} == {"random", "nondeterminism"}
    assert all(each["title"] and each["advice"] for each in found["findings"])
    assert found["reference"] == {"status": "completed", "result": "done"}
    assert found["recovery"]["longest_ms"] >= found["recovery"]["median_ms"] > 0
    assert len(found["crashes"]) == 4 * found["writes"]


def test_junit_has_a_case_for_every_crash(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    call("swallows", "--junit", str(file), code=1)
    suite = xml.parse(file).getroot()
    assert int(suite.get("tests", "0")) == len(suite) > 10
    assert suite.get("failures") == "1"
    (failure,) = suite.iter("failure")
    assert failure.get("type") == "swallowed"
    assert "raise it again" in (failure.text or "")


def test_stubs_and_patterns_make_it_right() -> None:
    call("double_charge", "--stub", 'charge="canned"', code=0)
    call("double_charge", "--repeatable", "ch*", code=0)
    call("double_charge", "--allow", "repeated", code=0)


def test_a_stub_for_a_step_that_there_is_not_is_refused_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "pays.py"
    file.write_text(
        "import pathlib\nimport buoy\n@buoy.step\nasync def pay_invoice() -> str:\n"
        f"    pathlib.Path({str(tmp_path / 'paid')!r}).touch()\n    return buoy.idempotency_key()\n"
        "@buoy.workflow\nasync def pays() -> str:\n    return await pay_invoice()\n"
    )
    found = call(f"{file}:pays", "--stub", "pay_invoise=1", code=2)
    assert "there is no step 'pay_invoise' to stub; did you mean 'pay_invoice'?" in found.stderr
    assert not (tmp_path / "paid").exists()


def test_stubs_and_patterns_that_met_no_step_are_told() -> None:
    words = ("--stub", 'charge="canned"', "--stub", "reserve=1", "--repeatable", "lod_*", "--repeatable", "ch*")
    shown = call("double_charge", *words, code=0).stdout
    assert "! the stub of reserve was never used; the steps that ran: charge" in shown
    assert "! repeatable 'lod_*' matched no step; the steps that ran: charge" in shown
    found = json.loads(call("double_charge", *words, "--json", code=0).stdout)
    assert len(found["unused"]) == 2


def test_a_workflow_that_fails_without_a_crash_is_not_told_to_be_right() -> None:
    shown = call("does_io", code=1).stdout
    assert "✗ 1. Workflow code does what it may not" in shown
    assert "Even without a crash it fails: workflow code may not do I/O" in shown
    shown = call("broken_payment", "--arg", "item=lamp", code=0).stdout
    assert "! without a crash it already fails: ValueError: out of stock" in shown
    assert "✓ every crash was recovered from, with the same failure" in shown


def test_a_wrong_answer_is_told_with_its_file_and_its_question(script: str) -> None:
    Path(script).write_text("- on: Ship it?\n  answer: maybe\n")
    told = call("asks", "--answers", script, code=2).stderr
    assert f"{script}, entry 1, the answer to 'Ship it?': expected yes or no, found 'maybe'" in told


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("asks", (), "waits for ever, for: Ship it?"),
        ("unknown", (), "has no workflow 'unknown'"),
        ("checkout", (), "item"),
        ("double_charge", ("--stub", "charge"), "write STEP=JSON"),
        ("double_charge", ("--stub", "charge={"), "--stub charge"),
        ("double_charge", ("--store", "cloud"), "cloud"),
        ("double_charge", ("--real", "--store", "memory"), "dies with a real process; choose sqlite or folder"),
        ("double_charge", ("--max-crashes", "0"), "at least one crash"),
        ("double_charge", ("--answers", "nowhere.yaml"), "cannot be read"),
        ("nightly.yaml", (), "the file cannot be read"),
    ],
)
def test_bad_input_is_told_in_one_line(name: str, words: tuple[str, ...], told: str) -> None:
    found = call(name, *words, code=2)
    assert told in found.stderr
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""


def test_what_steps_print_is_hidden_unless_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "talks.py"
    file.write_text(
        "import buoy\n@buoy.step\nasync def talk() -> None:\n    buoy.idempotency_key()\n    print('hello there')\n"
        "@buoy.workflow\nasync def talks() -> None:\n    await talk()\n"
    )
    assert "hello there" not in call(f"{file}:talks", code=0).stdout
    assert "hello there" in call(f"{file}:talks", "--prints", code=0).stdout
    real = ("--real", "--max-crashes", "1", "--no-cancel")
    assert "hello there" not in call(f"{file}:talks", *real, code=0).output
    assert "hello there" in call(f"{file}:talks", *real, "--prints", code=0).stdout
