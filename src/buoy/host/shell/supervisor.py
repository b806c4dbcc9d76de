"""The supervisor of one command: a process of its own between a runner and a command's process group.

Why: a runner that is killed cannot stop what it started. The guard holds the reading end of a pipe whose other end only
the runner has. When that end closes, however the runner ended, the group gets SIGTERM and, after the grace time,
SIGKILL. While the guard lives it holds a lock on the leaf's file: another runner that takes the run over starts the
same command only when nothing of the old one is left.

Run as a script with `python -I -S`; standard library only, few imports, since it is started for each command.
With a limit of memory the guard adds up the resident memory of all that the command started, and kills it when that is
more.
Input: five lengths of ten digits, then grace, limit of memory, lock, log and command.
Output: `started PID`, then `ended KIND NUMBER PEAK_KIB STOPPED OVER_MEMORY`.
"""

import fcntl
import os
import select
import signal
import sys

_LOOK_MS = 50
_MEMORY_LOOK_MS = 200
_KILLED_LOOKS_MAX = 20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TERMINATE = (signal.SIGTERM, signal.SIGHUP)


class Guard:
    """Starts the command, waits, and sees that nothing of it is left."""

    def __init__(self, grace_ms: int, memory_max: int = 0) -> None:
        self._grace_ms = grace_ms
        self._memory_max = memory_max
        self.memory_peak = 0
        self.over_memory = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._asked_to_stop = False
        self.stopped = False
        signal.set_wakeup_fd(self._wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for each in _TERMINATE:
            signal.signal(each, self._terminate)

    def _terminate(self, *_: object) -> None:
        self._asked_to_stop = True

    def lock(self, path: str) -> bool:
        """Waits until nothing of an earlier start is left. False: the worker no longer wants the command."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if self._unwanted(_LOOK_MS):
                    return False

    def start(self, command: str, log: str) -> int:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        child = os.fork()
        if child:
            os.close(output)
            try:
                os.setpgid(child, child)
            except OSError:
                pass  # it has done so itself, or is gone already
            return child
        try:
            os.setpgid(0, 0)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            signal.set_wakeup_fd(-1)
            for each in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, *_TERMINATE):
                signal.signal(each, signal.SIG_DFL)
            os.execv("/bin/sh", ["/bin/sh", "-c", command])  # noqa: S606 - the person's own command
        finally:
            os._exit(126)

    def wait(self, child: int) -> tuple[int, int]:
        """Waits for the command: its status and peak memory in KiB. Stops it when the worker no longer wants it."""
        looks_left: int | None = None
        while True:
            ended, status, usage = os.wait4(child, os.WNOHANG)
            if ended:
                break
            if looks_left is None:
                unwanted = self._unwanted(_MEMORY_LOOK_MS if self._memory_max else None)
                if self._memory_max and self._too_large(child):
                    self.over_memory = True
                    looks_left = 0
                elif unwanted:
                    self.stopped = True
                    self._signal(child, signal.SIGTERM)
                    looks_left = self._grace_ms // _LOOK_MS
            elif looks_left > 0:
                looks_left -= 1
                self._pause()
            else:
                self._signal(child, signal.SIGKILL)
                status, usage = os.wait4(child, 0)[1:]
                self._until_empty(child)
                return status, usage.ru_maxrss
        self._sweep(child)
        return status, usage.ru_maxrss

    def _too_large(self, child: int) -> bool:
        """Whether all that the command started has more memory than it may."""
        found = 0
        for process in _tree(child):
            try:
                resident, shared = _read(f"/proc/{process}/statm").split()[1:3]
            except (OSError, ValueError):
                continue  # it has ended
            found += (int(resident) - int(shared)) * _PAGE_BYTES
        self.memory_peak = max(self.memory_peak, found)
        return found > self._memory_max

    def _sweep(self, group: int) -> None:
        """What the command left in the background goes with it."""
        if not self._signal(group, signal.SIGTERM):
            return
        for _ in range(max(1, self._grace_ms // _LOOK_MS)):
            if not self._signal(group, 0):
                return
            self._pause()
        self._signal(group, signal.SIGKILL)
        self._until_empty(group)

    def _until_empty(self, group: int) -> None:
        """A killed process ends its system call first, which may make one more file. Zombies may stay: not forever."""
        for _ in range(_KILLED_LOOKS_MAX):
            if not self._signal(group, 0):
                return
            self._pause()

    def _signal(self, group: int, number: int) -> bool:
        """False if the group is empty."""
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True  # some of them are another user's: nothing more can be done
        return True

    def _pause(self) -> None:
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.poll(_LOOK_MS)
        self._drain()

    def _unwanted(self, timeout_ms: int | None) -> bool:
        """Waits for a signal or a word of the runner. True once the runner said stop, or is gone."""
        if self._asked_to_stop:
            return True
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        found = dict(poll.poll(timeout_ms))
        self._drain()
        if 0 in found:
            # One byte says stop; no byte says that the runner has ended.
            os.read(0, 1)
            self._asked_to_stop = True
        return self._asked_to_stop

    def _drain(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass


def _tree(root: int) -> "list[int]":
    """A process and all that descend from it."""
    found = [root]
    for process in found:
        try:
            with os.scandir(f"/proc/{process}/task") as tasks:
                for task in tasks:
                    found.extend(int(each) for each in _read(f"{task.path}/children").split())
        except OSError:
            continue  # it has ended, or this system does not tell
    return found


def _read(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 65536)
    finally:
        os.close(handle)


def _exactly(size: int) -> bytes:
    """So many bytes of the input; fewer mean that the runner has ended."""
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data


def _say(text: str) -> None:
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:
        pass  # the runner is gone; the log has the output, and the next runner does it again


def main() -> None:
    """Lengths first, so that no byte of a command can be mistaken for the word to stop."""
    sizes = [int(_exactly(10)) for _ in range(5)]
    grace, memory_max, lock, log, command = (_exactly(size).decode() for size in sizes)
    guard = Guard(int(grace), int(memory_max))
    if not guard.lock(lock):
        return
    child = guard.start(command, log)
    _say(f"started {child}")
    status, peak = guard.wait(child)
    if sys.platform == "darwin":
        peak //= 1024
    tail = f"{max(peak, guard.memory_peak // 1024)} {int(guard.stopped)} {int(guard.over_memory)}"
    if os.WIFSIGNALED(status):
        _say(f"ended signal {os.WTERMSIG(status)} {tail}")
    else:
        _say(f"ended code {os.WEXITSTATUS(status)} {tail}")


if __name__ == "__main__":
    main()
