"""Parts of the guard of jobs: it sees all of its children, and no log can end it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from buoy.host.jobs.logs import JobLog

_MANY = """
import os, signal
from buoy.host.jobs.process_tree import OwnChildren, children
own = OwnChildren()
made = []
for _ in range(900):
    child = os.fork()
    if not child:
        signal.pause()
    made.append(child)
print(set(own.look()) == set(made) == set(children(os.getpid())))
for each in made:
    os.kill(each, signal.SIGKILL)
    os.waitpid(each, 0)
print(own.look())
"""


def test_the_guard_sees_more_children_than_one_read_of_the_system_gives() -> None:
    done = subprocess.run([sys.executable, "-c", _MANY], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n[]\n"


def test_a_log_that_cannot_be_looked_at_is_left_alone(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    log = JobLog(str(tmp_path / "log"), handle, fresh=True, named=True)
    os.close(handle)  # as a file on a network disk that another machine removed
    assert log.trim(10) is False
