"""Kill a workflow in the middle, and watch it continue at the step where it was.

Run it with `make demo`. It needs nothing but Buoy: the store is one file in a temporary folder. Exit code 1 means that
the promise was broken: a completed step was executed again, or a step was lost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

FLOWS = Path(__file__).with_name("flows.py")
STEPS = ("reserve", "charge", "pack", "label", "ship", "notify")
VICTIM = "label"
RUN = "order-1"
PATIENCE_S = 30.0


class Broken(Exception):
    """The promise was not kept, or the demonstration could not be given."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="buoy-demo-") as folder:
        try:
            demonstrate(Path(folder))
        except Broken as problem:
            print(f"\nFAILED: {problem}", file=sys.stderr)
            return 1
    return 0


def demonstrate(folder: Path) -> None:
    store = f"sqlite:///{folder}/buoy.db"
    witness = folder / "witness.txt"
    witness.touch()

    say(f"1. An order of six steps begins, in a process of its own. Its log is {folder}/buoy.db, removed at the end.")
    kill_in_the_middle(store, witness)
    say("3. No process works on the run now. What does Buoy know about it?")
    run("why", RUN, "--store", store)
    say("4. A worker starts. It finds the dead process, takes the run over and continues it.")
    run("worker", str(FLOWS), "--store", store, "--until-idle")
    say("5. The result:")
    run("result", RUN, "--store", store)
    say("6. What the witness file saw:")
    judge(witness.read_text().splitlines())


def kill_in_the_middle(store: str, witness: Path) -> None:
    """SIGKILL, when the fourth of six steps is under way: no clean-up, no last words."""
    given = json.dumps({"item": "lamp", "witness": str(witness)})
    command = buoy("run", f"{FLOWS}:order", "--input", given, "--id", RUN, "--store", store)
    process = subprocess.Popen(command)
    try:
        wait_for(witness, f"begin {VICTIM}", process)
    finally:
        process.kill()
        process.wait()
    say(f"2. Process {process.pid} got SIGKILL while '{VICTIM}' was under way.")


def wait_for(witness: Path, line: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while line not in witness.read_text().splitlines():
        if process.poll() is not None:
            raise Broken(f"the run ended (exit code {process.returncode}) before it could be killed")
        if time.monotonic() > deadline:
            raise Broken(f"'{line}' was not seen within {PATIENCE_S:.0f} s")
        time.sleep(0.01)


def run(*words: str) -> None:
    try:
        done = subprocess.run(buoy(*words), timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Broken(f"'buoy {words[0]}' did not end within {PATIENCE_S:.0f} s") from error
    if done.returncode != 0:
        raise Broken(f"'buoy {words[0]}' ended with exit code {done.returncode}")


def buoy(*words: str) -> list[str]:
    """The command `buoy` of the same environment as this Python."""
    command = Path(sys.executable).with_name("buoy")
    if not command.exists():
        raise Broken(f"there is no {command}; call this with 'make demo', or install Buoy first")
    return [str(command), *words]


def judge(lines: list[str]) -> None:
    seen = Counter(lines)
    print("    step      begun  done")
    for step in STEPS:
        note = "  <- killed here, begun again" if step == VICTIM else ""
        print(f"    {step:<9} {seen[f'begin {step}']:>5} {seen[f'done {step}']:>5}{note}")
    for step in STEPS:
        if seen[f"done {step}"] != 1:
            raise Broken(f"'{step}' was done {seen[f'done {step}']} times instead of once")
        if seen[f"begin {step}"] != (2 if step == VICTIM else 1):
            raise Broken(f"'{step}' was begun {seen[f'begin {step}']} times")
    say("Every step was done exactly once, and none of the completed ones was executed again.")


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
