"""`buoy migrate`, and retries of specs that were edited since they started."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Buoy, Spawn, until

FLOW = """import buoy
@buoy.step
def {0}() -> int:
    return 1
@buoy.workflow
def flow() -> int:
    {0}()
    buoy.wait_signal('go')
    return {0}()
"""


@pytest.fixture
def paused(buoy: Buoy) -> Buoy:
    """A run of the old code that the new code could not drive."""
    for name, step in (("old", "charge"), ("new", "pay")):
        (buoy.folder / f"{name}.py").write_text(FLOW.format(step))
    buoy("start", "old.py", "--id", "v1")
    buoy("worker", "old.py", "--until-idle")
    buoy("signal", "v1", "go")
    buoy("worker", "new.py", "--until-idle")
    assert buoy.json("show", "v1")["document"]["status"] == "paused"
    return buoy


def test_a_dry_run_shows_it_and_changes_nothing(paused: Buoy) -> None:
    told = paused("migrate", "v1", "--rename", "charge=pay", "--dry-run").stdout
    assert "run v1 would be bound to" in told
    assert "renamed:  charge#1 to pay#1" in told
    assert "the run:  continues" in told
    found = paused.json("migrate", "v1", "--rename", "charge=pay", "--dry-run")
    assert (found["leaves"], found["done"], found["goes_on"]) == ({"charge#1": "pay#1"}, False, True)
    assert "version_bound" not in paused("events", "v1").stdout


def test_a_run_that_does_not_fit_names_the_very_command(paused: Buoy) -> None:
    (line,) = [each for each in paused.json("why", "v1")["you_can"] if "buoy migrate" in each]
    assert line.partition("buoy ")[2] == f"migrate v1 --rename charge=pay --dry-run --store {paused.store}"


def test_a_migrated_run_goes_on_with_the_new_code_and_the_log_says_so(paused: Buoy) -> None:
    assert paused.json("migrate", "v1", "--rename", "charge=pay")["done"] is True
    paused("worker", "new.py", "--until-idle")
    assert paused("result", "v1").stdout == "1\n"
    events = paused("events", "v1").stdout
    assert "charge is now pay" in events
    assert "charge#1, attempt 1" in events
    assert "pay#2, attempt 1" in events
    assert "charge" not in paused("graph", "v1").stdout


def test_all_runs_of_a_workflow_are_migrated(paused: Buoy) -> None:
    found = paused.json("migrate", "--all", "flow", "--rename", "charge=pay")
    assert ([each["run_id"] for each in found["migrated"]], found["left"]) == (["v1"], [])
    again = paused("migrate", "--all", "flow", "--rename", "charge=pay")
    assert "no run of flow is paused because no code fits" in again.stdout


def test_a_run_that_has_none_of_the_names_is_left_and_said(paused: Buoy) -> None:
    told = paused("migrate", "--all", "flow", "--rename", "pack=wrap", code=1).stdout
    assert "run v1 is left as it is: none of these names is in its log" in told


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("v1",), "no renamed step is given"),
        (("--rename", "a=b"), "which runs is not clear"),
        (("v1", "--all", "flow", "--rename", "a=b"), "which runs is not clear"),
        (("v1", "--rename", "a"), "write OLD=NEW"),
        (("v1", "--rename", "a=b", "--rename", "a=c"), "'a' is renamed twice"),
        (("v1", "--rename", "pack=wrap"), "has no step 'pack' that began; it has: charge, signal:go"),
        (("none", "--rename", "a=b"), "none"),
        (("v1", "--rename", "charge=pay", "--spec", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: tuple[str, ...], why: str, paused: Buoy) -> None:
    told = paused("migrate", *words, code=2).stderr
    assert why in told
    assert told.count("\n") == 1


# ---- specs


@pytest.fixture
def failed(buoy: Buoy) -> Path:
    path = buoy.folder / "s.yaml"
    path.write_text(
        "name: small\nsteps:\n  - {id: a, run: 'echo a >> seen', needs: []}\n"
        "  - {id: b, run: 'echo b >> seen; exit 3', needs: [a]}\n  - {id: c, run: 'echo c >> seen', needs: []}\n"
    )
    buoy("run", str(path), "--id", "s1", code=1)
    return path


def seen(buoy: Buoy) -> list[str]:
    return sorted((buoy.folder / "seen").read_text().split())


def test_a_retry_says_that_the_stored_spec_is_what_runs(buoy: Buoy, failed: Path) -> None:
    version = buoy.json("show", "s1")["document"]["version"]
    failed.write_text(failed.read_text().replace("exit 3", "exit 0"))
    told = buoy("retry", "s1", "--dry-run").stdout
    assert f"by spec:    {version}, as stored at the start of the run" in told
    assert "runs again: b#1" in told
    buoy("retry", "s1", "--yes")
    buoy("worker", "--until-idle")
    assert buoy.json("show", "s1")["document"]["status"] == "failed"
    assert seen(buoy) == ["a", "b", "b", "c"]


def test_a_retry_with_a_changed_spec_runs_that_one(buoy: Buoy, failed: Path) -> None:
    failed.write_text(failed.read_text().replace("exit 3", "exit 0"))
    assert f"{failed}" in buoy("retry", "s1", "--spec", str(failed), "--dry-run").stdout
    buoy("retry", "s1", "--spec", str(failed), "--yes")
    buoy("worker", "--until-idle")
    assert buoy.json("show", "s1")["document"]["status"] == "completed"
    assert seen(buoy) == ["a", "b", "b", "c"]


def test_a_changed_spec_that_does_not_fit_is_refused(buoy: Buoy, failed: Path) -> None:
    before = buoy("events", "s1").stdout
    failed.write_text(failed.read_text().replace("echo a", "echo other"))
    told = buoy("retry", "s1", "--spec", str(failed), "--yes", code=2).stderr
    assert "does not fit what run s1 has done: a#1 was called with" in told
    assert "echo other" in told
    assert buoy("events", "s1").stdout == before


def test_a_jump_shows_what_is_kept_beside_it(buoy: Buoy, failed: Path) -> None:
    found = buoy.json("jump", "s1", "a", "--dry-run")
    assert sorted(found["again"]) == ["a#1", "b#1"]
    assert found["plan"]["dropped"] == found["again"]


def test_it_is_told_when_no_worker_has_the_functions_of_a_spec(buoy: Buoy, spawn: Spawn) -> None:
    path = buoy.folder / "calls.yaml"
    path.write_text("name: calls\nsteps: [{id: a, call: 'somewhere:thing'}]\n")
    _start_without_check(path, buoy.store)
    worker = spawn("worker")
    until(lambda: "has the functions that 'spec:calls' calls" in buoy("why", "c1").stdout, worker)


def _start_without_check(path: Path, store: str) -> None:
    """Starts the spec as a process does that has the functions."""
    import asyncio

    import buoy as library
    from buoy.wiring.app import open_client

    async def start() -> None:
        async with open_client(store) as client:
            await client.start_as("c1", library.load_spec(path))

    asyncio.run(start())
