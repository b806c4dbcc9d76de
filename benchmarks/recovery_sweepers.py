"""Many sweepers, each a process of its own, at once on the orphans of a process that was killed.

Counted exactly: each orphan must be recovered by one of them, with one claim in its log. As a program
(`recovery_sweepers.py URL RUNS`) it is the process that holds the runs and is killed.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from buoy.core.ids import LeafId, RunId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.engine.read_log import read_log
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.ports.records import Held, Write
from buoy.stores import open_store
from buoy.wiring.app import open_client
from buoy.wiring.inspection import liveness_of
from buoy.wiring.local_worker import runner_info

# All of them leave a trace in the log, so that twice would be seen.
POLICIES = ("restart", "fail", "hold")
BEFORE = 3
_SWEEPER = """
import sys
from buoy.cli.main import main
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main())
"""


def many_sweepers(runs: int, crowd: int, folder: Path) -> dict[str, object]:
    """For both kinds of store: how long, how many recovered, and whether each was exactly once."""
    found: dict[str, object] = {}
    for kind in ("sqlite", "folder"):
        scratch = Path(tempfile.mkdtemp(prefix="sweepers-", dir=folder))
        try:
            url = f"sqlite:///{scratch / 'runs.db'}" if kind == "sqlite" else f"file://{scratch / 'runs'}"
            found[kind] = _one(url, runs, crowd)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        sys.stderr.write(f"{kind}: {found[kind]}\n")
    return {"orphans": runs, "sweepers": crowd, "by_store": found}


def _one(url: str, runs: int, crowd: int) -> dict[str, object]:
    killed = subprocess.run([sys.executable, __file__, url, str(runs)], check=False)
    assert killed.returncode == -signal.SIGKILL, "the process that held the runs was not killed"
    words = [sys.executable, "-c", _SWEEPER, "sweeper", "--once", "--json", "--store", url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    sweepers = [subprocess.Popen(words, text=True, **pipes) for _ in range(crowd)]
    for each in sweepers:
        assert each.stdout is not None and each.stdout.readline() == "ready\n"
    began = time.monotonic()
    for each in sweepers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    told = [json.loads(each.communicate()[0]) for each in sweepers]
    took_s = time.monotonic() - began
    done = {word: sum(each[word] for each in told) for word in ("restarted", "failed", "held", "unknown")}
    claims = asyncio.run(_claims(url, runs))
    once = claims == {1: runs} and done["restarted"] + done["failed"] + done["held"] == runs
    return {"seconds": round(took_s, 2), **done, "claims_per_run": dict(claims), "each_exactly_once": once}


async def _claims(url: str, runs: int) -> Counter[int]:
    """How many runs have how many claims by sweepers."""
    found: Counter[int] = Counter()
    async with open_client(url) as client:
        for number in range(runs):
            tail = (await read_log(client.store, RunId(f"run-{number}")))[BEFORE:]
            found[sum(isinstance(event.body, e.Claimed) for event in tail)] += 1
    return found


async def _hold(url: str, runs: int) -> None:
    """Stores the runs, and dies."""
    store = await open_store(url, SystemClock())
    info = runner_info(SystemIds(), "worker", queues=("default",))
    liveness_of(store).announce(info.id)
    await store.register(info)
    for number in range(runs):
        run, now = RunId(f"run-{number}"), time.time()
        policy = POLICIES[number % len(POLICIES)]
        bodies = (
            e.WorkflowCreated(workflow="job", input=msgspec.Raw(b"{}"), policy=policy),
            e.Claimed(runner=info.id, cause="created"),
            e.StepStarted(leaf=LeafId("a#1"), name="a"),
        )
        events = tuple(e.Event(seq, now, body, nonce=run if seq == 1 else None) for seq, body in enumerate(bodies, 1))
        await store.commit([Write(run, 0, events, document(fold(run, events)), Held(info.id))])
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], int(sys.argv[2])))
