"""Values in commands of real runs: parameters and results are never code, and logs of older versions still replay."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import buoy
from buoy.core.log import events as e
from buoy.engine.spec.source import SpecSource
from buoy.engine.spec.workflow import SpecWorkflow, spec_of
from buoy.errors import BadSpec

from .harness import QUICK_STOP, bodies_of, cuts, log_of, opened, plant, result_of, store_at, until_event

EVIL = "'; touch PWN #\"; touch PWN #$(touch PWN)`touch PWN`\n*"


def spec(*commands: str, parameters: dict[str, Any] | None = None) -> SpecWorkflow:
    steps = [{"id": f"s{number}", "run": each} for number, each in enumerate(commands)]
    last = f"{{{{ steps.s{len(commands) - 1}.result }}}}"
    data = {"name": "x", "parameters": parameters or {}, "steps": steps, "result": last}
    return spec_of(SpecSource("test.yaml", json.dumps(data)), calls=None)


@pytest.mark.parametrize("written", ["{p}", "'{p}'", '"{p}"', '"$(printf %s. "{p}")"', "'{{ parameters.p }}'"])
async def test_a_parameter_is_never_executed(url: str, tmp_path: Path, written: str) -> None:
    workflow = spec(f"printf %s {written} > $BUOY_RESULT_FILE", parameters={"p": "x"})
    async with opened(url, workflow) as app:
        run = await app.start_as("r1", workflow, p=EVIL, directory=str(tmp_path))
        assert await result_of(app, run) == EVIL + ("." if "printf" in written else "")
    assert not (tmp_path / "PWN").exists()


@pytest.mark.parametrize("quote", ["", "'", '"'])
async def test_the_result_of_a_step_is_never_executed(url: str, tmp_path: Path, quote: str) -> None:
    make = f"printf %s {shlex.quote(EVIL)} > $BUOY_RESULT_FILE"
    use = f"printf %s {quote}{{{{ steps.s0.result }}}}{quote} > $BUOY_RESULT_FILE"
    workflow = spec(make, use)
    async with opened(url, workflow) as app:
        assert await result_of(app, await app.start_as("r1", workflow, directory=str(tmp_path))) == EVIL
    assert not (tmp_path / "PWN").exists()


async def test_a_value_that_no_process_can_be_given_fails_its_step_with_the_reason(url: str) -> None:
    workflow = spec("head -c 200000 /dev/zero | tr '\\0' a > $BUOY_RESULT_FILE", "echo {{ steps.s0.result }}")
    async with opened(url, workflow) as app:
        with pytest.raises(buoy.RunFailed, match="the system's limit is"):
            await result_of(app, await app.start_as("r1", workflow))
        (failed,) = await bodies_of(app, "r1", e.StepFailed)
        assert (failed.leaf, failed.error.retryable) == ("s1#1", False)


def test_a_value_in_an_inner_shell_is_refused_with_file_and_line() -> None:
    text = "name: x\nparameters: {p: v}\nsteps:\n  - id: a\n    run: |\n      sh -c 'echo {p}'\n"
    with pytest.raises(BadSpec) as found:
        spec_of(SpecSource("s.yaml", text), calls=None)
    assert str(found.value).startswith("s.yaml:5: steps[0].run: {p} stands in a program for sh, where no value can be")


def as_before(log: Sequence[e.Event], commands: dict[str, str]) -> list[e.Event]:
    """The log as it was when values were quoted into the text of commands."""
    found = []
    for event in log:
        body = event.body
        if isinstance(body, e.StepStarted):
            args = json.loads(bytes(body.args))
            old = {**args, "command": commands[body.leaf], "variables": {}}
            body = msgspec.structs.replace(body, args=msgspec.Raw(json.dumps(old).encode()))
        found.append(msgspec.structs.replace(event, body=body))
    return found


async def test_logs_of_older_versions_replay_and_go_on_with_values_in_the_environment(url: str, tmp_path: Path) -> None:
    commands = [
        "echo '{p}' >> seen",
        "echo {p} {{ steps.s0.exit_code }} >> seen",
        'printf %s "{p}" > $BUOY_RESULT_FILE',
    ]
    workflow = spec(*commands, parameters={"p": "a b"})
    async with opened(url, workflow) as app:
        assert await result_of(app, await app.start_as("whole", workflow, directory=str(tmp_path))) == "a b"
        log = await log_of(app, "whole")
    before = as_before(log, {"s0#1": "echo ''a b'' >> seen", "s1#1": "echo 'a b' 0 >> seen",
                             "s2#1": "printf %s \"'a b'\" > $BUOY_RESULT_FILE"})  # fmt: skip
    (tmp_path / "seen").unlink()
    async with store_at(url) as store:
        await store.define(workflow.version, workflow.stored)
        for number, cut in enumerate(cuts(before)):
            await plant(store, f"cut-{number}", cut)
    async with buoy.open(url, workflows=[workflow], options=QUICK_STOP, specs=True) as app:
        for number, cut in enumerate(cuts(before)):
            done = (await until_event(app, f"cut-{number}", "workflow_completed"))[-1].body
            assert isinstance(done, e.WorkflowCompleted)
            # A step that the older version had started is executed as that log has it.
            started = any(isinstance(each.body, e.StepStarted) and each.body.leaf == "s2#1" for each in cut)
            assert json.loads(bytes(done.result)) == ("'a b'" if started else "a b")
    assert "a b 0" in (tmp_path / "seen").read_text()
