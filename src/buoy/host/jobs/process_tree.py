"""Processes as the guard of jobs sees them: families, memory, signals, and what an earlier guard left behind.

Invariant: a process is called part of a job only by proof: its descent, its group, or the result file in its
environment. Standard library only: the guard imports nothing else.
"""

import os
import signal

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# The system gives at most a page at once, filled up to the last number that fits: a shorter answer is the end.
_SHORT_BYTES = _PAGE_BYTES // 2


# In the environment of each command: the guard that started it, and a number.
GUARD = b"BUOY_GUARD"
# And the file that it may write a result to.
RESULT = b"BUOY_RESULT_FILE"


def identity(process: int) -> str:
    """The PID and the start of a process: together they name one process of this boot. Empty: it is gone."""
    try:
        fields = _read(f"/proc/{process}/stat").rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else f"{process}:{fields[19].decode()}"


def kill_left_behind(result: str) -> bool:
    """Kills what a dead guard left of the command with this result file. False: nothing of it is there.

    What a living guard has of it is on its way out.
    """
    found = False
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        variables = environment(int(name)) if name.isdecimal() else []
        if RESULT + b"=" + os.fsencode(result) not in variables:
            continue
        guard = _value(variables, GUARD).rpartition(":")[0]
        if guard and identity(int(guard.partition(":")[0])) != guard:
            found = kill(int(name), signal.SIGKILL) or found
        elif guard and identity(int(name)):
            found = True
    return found


def kill_all_of(guard: str) -> bool:
    """Kills every process that has this guard in its environment. False: there is none."""
    found = False
    for name in os.listdir("/proc") if guard and os.path.isdir("/proc") else ():
        if name.isdecimal() and started_by(int(name)).rpartition(":")[0] == guard and identity(int(name)):
            found = kill(int(name), signal.SIGKILL) or found
    return found


def environment(process: int) -> "list[bytes]":
    try:
        return _read(f"/proc/{process}/environ").split(b"\0")
    except OSError:
        return []  # it has ended, or is another user's


def started_by(process: int) -> str:
    """The guard and the number in the environment of a process."""
    return _value(environment(process), GUARD)


def _value(variables: "list[bytes]", name: bytes) -> str:
    head = name + b"="
    return next((os.fsdecode(each[len(head) :]) for each in variables if each.startswith(head)), "")


def tree(root: int) -> "list[int]":
    """A process and all that descend from it."""
    found = [root]
    for process in found:
        found.extend(children(process))
    return found


def children(process: int) -> "list[int]":
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{process}/task"):
            found.extend(map(int, _read(f"/proc/{process}/task/{task}/children").split()))
    except OSError:
        return found  # it has ended, or this system does not tell
    return found


class OwnChildren:
    """The children of this process, which has one thread. One file stays open: a look is two calls instead of seven."""

    def __init__(self) -> None:
        own = os.getpid()
        try:
            self._handle = os.open(f"/proc/{own}/task/{own}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._handle = -1  # this system does not tell

    def look(self) -> "list[int]":
        data = b""
        while self._handle >= 0 and (more := os.pread(self._handle, 1 << 16, len(data))):
            data += more
            if len(more) < _SHORT_BYTES:
                break
        return [int(each) for each in data.split()]


def kill(process: int, number: int) -> bool:
    """Signals a process, or a group if it is negative. False: it is gone."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # some of them are another user's: nothing more can be done
    return True


def memory_bytes(processes: "set[int]") -> int:
    """The resident memory that these processes do not share with others."""
    found = 0
    for process in processes:
        try:
            resident, shared = _read(f"/proc/{process}/statm").split()[1:3]
        except (OSError, ValueError):
            continue  # it has ended
        found += (int(resident) - int(shared)) * _PAGE_BYTES
    return found


def _read(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = b""
        while more := os.read(handle, 1 << 20):
            data += more
        return data
    finally:
        os.close(handle)
