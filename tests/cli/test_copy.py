"""`buoy copy`: what a person sees before, during and after runs move to another store."""

from __future__ import annotations

import pytest

from .conftest import FLOWS, Buoy


@pytest.fixture
def elsewhere(buoy: Buoy) -> Buoy:
    """A store that is not there yet."""
    made = Buoy(buoy.folder)
    made.store = f"file://{buoy.folder / 'lab'}"
    return made


def copied(buoy: Buoy, elsewhere: Buoy, *words: str, code: int = 0) -> str:
    """What the command says."""
    return buoy("copy", "--to", elsewhere.store, *words, code=code).output


def test_a_dry_run_makes_no_store_and_tells_what_is_left_to_do(buoy: Buoy, elsewhere: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    assert "1 run would move, 0 runs there already" in copied(buoy, elsewhere, "--all", "--dry-run")
    assert not (buoy.folder / "lab").exists()
    assert buoy.json("show", "s1")["document"]["status"] == "pending"
    assert "1 run moved, 0 runs there already" in copied(buoy, elsewhere, "--all")
    assert "0 runs would move, 1 run there already" in copied(buoy, elsewhere, "--all", "--dry-run")
    assert "0 runs moved, 1 run there already" in copied(buoy, elsewhere, "--all")


def test_a_mistyped_source_is_refused_and_not_made(buoy: Buoy, elsewhere: Buoy) -> None:
    told = copied(buoy, elsewhere, "--all", "--from", "sqlite:///typo.db", code=5)
    assert "no store at" in told and "typo.db" in told
    assert not (buoy.folder / "typo.db").exists()


def test_a_run_that_moved_names_its_new_address(buoy: Buoy, elsewhere: Buoy) -> None:
    buoy("start", f"{FLOWS}:sleeper", "--id", "s1")
    copied(buoy, elsewhere, "--run", "s1")
    assert f"has moved to {elsewhere.store}" in buoy("signal", "s1", "go", code=2).stderr
    assert f"moved     to {elsewhere.store}" in buoy("show", "s1").stdout
    assert elsewhere.store in buoy("why", "s1").stdout


def test_a_run_that_moved_elsewhere_before_is_skipped_and_named(buoy: Buoy, elsewhere: Buoy) -> None:
    for name in ("s1", "s2", "s3"):
        buoy("start", f"{FLOWS}:sleeper", "--id", name)
    copied(buoy, elsewhere, "--run", "s2")
    third = Buoy(buoy.folder)
    third.store = f"file://{buoy.folder / 'third'}"
    told = copied(buoy, third, "--all")
    assert f"s2: skipped, moved to {elsewhere.store} before" in told
    assert "2 runs moved, 0 runs there already; 1 run moved elsewhere before" in told
    again = copied(buoy, third, "--all")
    assert "0 runs moved, 2 runs there already; 1 run moved elsewhere before" in again
    states = {each["run_id"]: each["state"] for each in buoy.json("copy", "--all", "--to", third.store)["runs"]}
    assert states == {"s1": "complete", "s2": "elsewhere", "s3": "complete"}
