"""Many orphans of a process that was killed, and many sweepers that are processes of their own.

As a program (`python -m tests.recovery.many_orphans URL NUMBER`) it is the process that is killed: it holds the runs,
and ends itself with SIGKILL when all of them are stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from buoy.core.ids import RunId, RunnerId
from buoy.core.log import events as e
from buoy.core.log.document import document
from buoy.core.log.state import fold
from buoy.host.clock import SystemClock
from buoy.host.ids import SystemIds
from buoy.ports.records import Committed, Held, Write
from buoy.stores import open_store
from buoy.wiring.inspection import liveness_of
from buoy.wiring.local_worker import runner_info
from tests.core.logbook import claimed, completed, created, started
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
POLICIES = ("resume", "restart", "fail", "hold")
# Every fifth was held by a runner that the store does not know: no declared death releases it.
STRANGER = RunnerId("never-registered")
BEFORE = 5
WORDS = ("restarted", "resumed", "failed", "held", "unknown")
# A sweeper that has loaded everything and waits for the word to begin.
SWEEPER = """
import sys
from buoy.cli.main import main
print("ready", flush=True)
sys.stdin.readline()
sys.exit(main())
"""


def orphan(number: int) -> tuple[RunId, str]:
    """The id and the policy of one."""
    return RunId(f"run-{number:04}"), POLICIES[number % len(POLICIES)]


def abandon(url: str, number: int) -> None:
    """Leaves so many runs behind, by way of a process that is killed."""
    words = [sys.executable, "-m", "tests.recovery.many_orphans", url, str(number)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def sweep_at_once(url: str, crowd: int) -> Counter[str]:
    """So many `buoy sweeper --once` in processes of their own, all at the same time. What they did, together."""
    words = [sys.executable, "-c", SWEEPER, "sweeper", "--once", "--json", "--store", url]
    sweepers = [
        subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(crowd)
    ]
    try:
        for each in sweepers:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        for each in sweepers:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        told = [each.communicate(timeout=240) for each in sweepers]
    finally:
        for each in sweepers:
            each.kill()
            each.wait()
    done: Counter[str] = Counter()
    for each, (out, error) in zip(sweepers, told, strict=True):
        # 1: what it brought back waits, since no worker is alive.
        assert each.returncode in (0, 1) and not error, f"{out[:500]}{error[:500]}"
        found: dict[str, Any] = json.loads(out)
        assert found["troubles"] == [], found["troubles"]
        done.update({word: found[word] for word in WORDS})
    return done


async def _hold(url: str, number: int) -> None:
    """Stores the runs, and dies."""
    store = await open_store(url, SystemClock())
    info = msgspec.structs.replace(runner_info(SystemIds(), "worker"), workflows={"order": ()}, queues=("default",))
    liveness_of(store).announce(info.id)
    await store.register(info)
    writes: list[Write] = []
    for place in range(number):
        run, policy = orphan(place)
        bodies = (created(policy=policy), claimed(info.id), started("a#1"), completed("a#1"), started("b#1"))
        events = tuple(
            e.Event(seq, 1_700_000_000.0, body, nonce=f"{run}-1" if seq == 1 else None)
            for seq, body in enumerate(bodies, 1)
        )
        holder = STRANGER if place % 5 == 4 else info.id
        writes.append(Write(run, 0, events, document(fold(run, events)), Held(holder)))
    outcomes = await store.commit(writes)
    assert outcomes == [Committed(BEFORE)] * number
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], int(sys.argv[2])))
