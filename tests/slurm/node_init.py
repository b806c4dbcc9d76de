"""The first process of a virtual node: starts slurmd and inherits all its orphans, so that none stays a zombie.

`python node_init.py NAME`. SIGTERM is a power cut: slurmd and everything that it ever started is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_SUBREAPER = 36
_LOOK_S = 0.05


def descendants() -> list[int]:
    """All processes below this one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found, stack = [], [os.getpid()]
    while stack:
        children = parents.get(stack.pop(), [])
        found += children
        stack += children
    return found


def reap() -> None:
    """Takes the exit codes of all that ended."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def main(name: str) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this process cannot inherit orphans")
    over = False

    def cut(*_: object) -> None:
        nonlocal over
        over = True

    signal.signal(signal.SIGTERM, cut)
    slurmd = subprocess.Popen(["slurmd", "-D", "-N", name], stdin=subprocess.DEVNULL)
    print(slurmd.pid, flush=True)
    while not over:
        reap()
        time.sleep(_LOOK_S)
    while left := descendants():
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        reap()


if __name__ == "__main__":
    main(sys.argv[1])
