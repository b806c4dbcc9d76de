"""Where newcomers and operators stumbled: what the commands say when a run stands still, and what was meant."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from .conftest import FLOWS, Buoy, Spawn, until
from .test_recovering import killed

UNDOABLE = """
import asyncio, buoy
from pathlib import Path

@buoy.step
async def unbook(n: int) -> None: ...

@buoy.step(compensate=unbook)
async def book() -> int:
    return 1

@buoy.step
async def slow(witness: str) -> None:
    buoy.progress(1, 4)
    with Path(witness).open("a") as file:
        file.write("slow\\n")
    await asyncio.sleep(60)

@buoy.step
async def plain(witness: str) -> None:
    buoy.progress(4, 4, note="all of it")

@buoy.workflow(recovery="restart")
async def again(witness: str) -> None:
    await book()
    await slow(witness)

@buoy.workflow(recovery="fail")
async def failing(witness: str) -> None:
    await book()
    await slow(witness)

@buoy.step
async def still(witness: str) -> None:
    with Path(witness).open("a") as file:
        file.write("still\\n")
    await asyncio.sleep(60)

@buoy.workflow
async def silent(witness: str) -> None:
    await plain(witness)
    await still(witness)
"""
NAMES = """
import buoy

@buoy.step
async def {first}() -> int:
    return 1

@buoy.step
async def pack() -> int:
    return 2

@buoy.workflow
async def order() -> bool:
    await {first}()
    await pack()
    return await buoy.ask("Ship it?", kind="confirm")
"""
SPEC = """
name: braces
steps:
  - id: a
    run: "true"
  - id: b
    run: echo {a.n}
"""
WORKER = "no worker is alive; start a worker with the file that has workflow 'parts': buoy worker FILE.py"


@pytest.fixture
def on_folder(buoy: Buoy) -> Buoy:
    buoy.store = f"file://{buoy.folder / 'folder'}"
    return buoy


def test_a_second_resume_without_a_worker_says_what_is_missing(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    first = buoy("resume", "p1")
    assert "put back into its queue" in first.stdout and WORKER in first.stderr
    second = buoy("resume", "p1")
    assert "it is running and queued already" in second.stdout and WORKER in second.stderr
    told = buoy.json("resume", "p1")
    assert not told["done"] and told["missing"].startswith("no worker is alive; start a worker")


def test_a_resumed_or_released_run_that_nobody_can_take_is_not_just_running(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    buoy("pause", "s1")
    told = buoy("resume", "s1")
    assert told.stdout == "run s1 is pending\n" and "nothing happens yet: no worker is alive" in told.stderr
    buoy("start", f"{FLOWS}:sleeper", "--id", "n1")
    buoy.drive()
    refused = buoy("resume", "n1", code=2).stderr
    assert "not paused, it is waiting: it waits, and continues by itself" in refused and "`buoy why n1`" in refused


@pytest.mark.parametrize("command", ["resume", "recover"])
def test_the_doctor_has_nothing_to_say_about_a_run_that_was_brought_back(
    buoy: Buoy, spawn: Spawn, command: str
) -> None:
    killed(buoy, spawn)
    assert buoy.json("doctor", code=1)["counts"] == {"H1": 1}
    assert "is dead (lock free) but still registered" in buoy("doctor", code=1).stdout
    buoy("recover", "p1", "--dry-run")
    assert buoy.json("doctor", code=1)["counts"] == {"H1": 1}, "looking changes nothing"
    buoy(command, "p1")
    assert buoy.json("doctor")["counts"] == {}
    assert "still registered" not in buoy("status", code=1).stdout and "is dead" not in buoy("status", code=1).stdout


def lost(buoy: Buoy, spawn: Spawn, name: str) -> None:
    flows = buoy.folder / "undoable.py"
    flows.write_text(UNDOABLE)
    victim = spawn("run", f"{flows}:{name}", "--arg", f"witness={buoy.witness}", "--id", name)
    until(lambda: "slow" in buoy.seen(), victim)
    victim.send(signal.SIGKILL)
    victim.wait()


def test_a_restart_names_what_it_drops_and_what_it_does_twice(buoy: Buoy, spawn: Spawn) -> None:
    lost(buoy, spawn, "again")
    told = buoy("recover", "again", "--dry-run").stdout
    assert "is kept:    nothing of what happened" in told and "is dropped: book#1, slow#1" in told
    assert "not undone: book#1 (by unbook): executed a second time, under the same key" in told
    plan = buoy.json("recover", "again", "--dry-run")["plan"]
    assert (plan["dropped"], plan["not_undone"]) == (["book#1", "slow#1"], ["book#1"])
    assert "Nothing is undone first" in buoy("why", "again").stdout


def test_a_run_that_is_failed_names_what_nobody_undoes(buoy: Buoy, spawn: Spawn) -> None:
    lost(buoy, spawn, "failing")
    told = buoy("recover", "failing", "--dry-run").stdout
    assert "no outcome: slow#1, which had begun" in told
    assert "not undone: book#1 (by unbook): no compensation runs" in told
    before = buoy("why", "failing").stdout
    assert "Nothing is undone then" in before and "buoy recover failing" in before and "buoy resume" not in before
    ended = buoy("resume", "failing", code=2).stderr
    assert "was ended as failed, not resumed, since its policy is fail" in ended
    assert "undo by hand the effects of: book#1" in buoy("why", "failing").stdout


def test_progress_is_told_of_the_step_that_is_under_way(buoy: Buoy, spawn: Spawn) -> None:
    flows = buoy.folder / "undoable.py"
    flows.write_text(UNDOABLE)
    owner = spawn("run", f"{flows}:again", "--arg", f"witness={buoy.witness}", "--id", "again")
    until(lambda: "slow" in buoy.seen(), owner)
    until(lambda: "1 of 4 (25%)" in buoy("ps").stdout, owner)
    owner.send(signal.SIGKILL)
    owner.wait()
    assert "had come to 1 of 4 (25%)" in buoy("ps").stdout
    owner = spawn("run", f"{flows}:silent", "--arg", f"witness={buoy.witness}", "--id", "silent")
    until(lambda: "still" in buoy.seen(), owner)
    shown = {each["document"]["run_id"]: each for each in buoy.json("ps")["runs"]}
    assert "progress" not in shown["silent"] and "all of it" not in buoy("ps").stdout + buoy("show", "silent").stdout


def test_a_signal_of_a_wrong_name_is_kept_and_told(buoy: Buoy) -> None:
    buoy("start", f"{FLOWS}:signalled", "--id", "g1")
    early = buoy("signal", "g1", "packed")
    assert "'packed' is kept until it does" in early.stderr, "it has not begun, and waits for no signal yet"
    buoy("start", f"{FLOWS}:signalled", "--id", "g2")
    buoy.drive()
    slip = buoy("signal", "g2", "pakced")
    assert slip.stdout.startswith("sent; ")
    assert "does not wait for 'pakced' now: it waits for 'packed'; 'pakced' is kept" in slip.stderr
    assert "it waits for 'packed'" in buoy.json("signal", "g2", "pakced", "--dedupe", "x")["hint"]
    assert "hint" not in buoy.json("signal", "g2", "pakced", "--dedupe", "x"), "nothing was sent this time"
    assert buoy("why", "g2").stdout.startswith("g2 waits for signal 'packed'.")
    right = buoy("signal", "g2", "packed")
    assert right.stderr == "" and buoy("why", "g2").stdout.startswith("g2 should continue")


def test_a_wrong_migration_is_told_and_can_be_taken_back(buoy: Buoy) -> None:
    old, new = buoy.folder / "old.py", buoy.folder / "new.py"
    old.write_text(NAMES.format(first="charge"))
    new.write_text(NAMES.format(first="take_payment"))
    buoy("start", f"{old}:order", "--id", "o1")
    buoy("worker", str(old), "--until-idle")
    buoy("answer", "o1", "yes")
    buoy("worker", str(new), "--until-idle")
    buoy("migrate", "o1", "--rename", "pack=take_payment")
    buoy("worker", str(new), "--until-idle")
    told = buoy("why", "o1").stdout
    assert "it was migrated just before" in told and "pack was said to be take_payment now" in told
    assert f"buoy migrate o1 --rename take_payment=pack --dry-run --store {buoy.store}" in told
    buoy("migrate", "o1", "--rename", "take_payment=pack", "--rename", "charge=take_payment")
    buoy("worker", str(new), "--until-idle")
    assert buoy("result", "o1").stdout == "true\n"


def test_a_sweep_says_what_is_left_to_do_and_by_whom(buoy: Buoy, spawn: Spawn) -> None:
    killed(buoy, spawn)
    first = buoy("sweeper", "--once", code=1).stderr
    assert "no worker is alive; start one to continue: buoy worker FILE.py" in first
    again = buoy("sweeper", "--once", "--stale-after", "0", code=1).stderr
    assert f"buoy why RUN --store {buoy.store}; about all: buoy why --all" in again and "buoy worker FILE.py" in again
    buoy.drive()
    assert buoy("sweeper", "--once", "--stale-after", "0").stderr == ""


def test_a_sweep_names_the_runs_that_it_held(buoy: Buoy, spawn: Spawn) -> None:
    flows = buoy.folder / "held.py"
    flows.write_text(UNDOABLE.replace('recovery="fail"', 'recovery="hold"'))
    victim = spawn("run", f"{flows}:failing", "--arg", f"witness={buoy.witness}", "--id", "h1")
    until(lambda: "slow" in buoy.seen(), victim)
    victim.send(signal.SIGKILL)
    victim.wait()
    assert "held until you release them: h1; see buoy why h1" in buoy("sweeper", "--once").stderr


def test_a_folder_is_told_as_a_database_is(on_folder: Buoy) -> None:
    on_folder("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    sound = on_folder("doctor").stdout
    assert "integrity  every log" in sound and "indexes    every entry" in sound and "1 run looked at" in sound
    for entry in (on_folder.folder / "folder" / "tasks").rglob("*~s1~*"):
        entry.unlink()
    told = on_folder("doctor", code=1).stdout
    assert "indexes    entries that do not fit their runs: 1" in told
    assert "index      1  An entry of an index is missing or left over" in told


def test_an_entry_of_a_queue_that_its_run_has_passed_is_no_trouble(on_folder: Buoy) -> None:
    """A worker that is killed after its commit leaves such an entry. The next claim meets it and drops it."""
    on_folder("start", f"{FLOWS}:ship", "--arg", 'parcel={"item": "lamp"}', "--id", "s1")
    (entry,) = (on_folder.folder / "folder" / "tasks").rglob("*~s1~*")
    left = entry.read_bytes()
    on_folder("cancel", "s1")
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_bytes(left)
    told = on_folder("doctor").stdout
    assert "healthy" in told and "stale      1 left over in the indexes" in told, told
    assert json.loads(on_folder("doctor", "--fix", "--json").stdout)["stale"] == 0
    assert not entry.exists()


def test_one_brace_is_warned_about_with_its_line(buoy: Buoy) -> None:
    file = Path(buoy.folder / "braces.yaml")
    file.write_text(SPEC)
    sound = buoy("validate", str(file))
    assert f"{file} is sound" in sound.stdout
    expected = f"warning: {file}:7: steps[1].run: {{a.n}} has one brace and is plain text"
    assert expected in sound.stderr and "{{ steps.a.n }}" in sound.stderr
    told = buoy.json("validate", str(file))
    assert [(each["line"], each["place"]) for each in told["warnings"]] == [(7, "steps[1].run")]
    assert expected in buoy("start", str(file), "--id", "b1").stderr
    assert "warning" not in buoy("start", str(file), "--id", "b1", "--json").stdout


def test_another_machine_is_not_said_to_live(buoy: Buoy, spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(buoy, spawn)
    monkeypatch.setenv("BUOY_HOST", "far-away")
    assert "not seen from here (it runs on " in buoy("status").stdout
    told = buoy("why", "p1").stdout
    assert "lives can be seen at once on " in told
    assert "needs no recovery: it is running, and nothing wrong was found" in buoy("recover", "p1").stdout
