"""The supervisor of a runner's commands: one process between a runner and the process groups of all its jobs.

Why: a runner that is killed cannot stop what it started. The guard holds the reading end of a pipe whose other end only
the runner has. When that end closes, every group gets SIGTERM and, after its grace time, SIGKILL. A process that leaves
its group becomes a child of the guard, and ends with its command. The log of a command is locked as long as the guard
or any process of the command has it. A guard that finds an earlier log of the same attempt kills what is left of it,
if the guard of that process is dead.

A process of its own with the standard library only, so that a command's peak memory is not the guard's. Input: orders
(`guard_input`). Output: one line of JSON for each end (`guard_output`). See `host.jobs.shell`.
"""

import ctypes
import os
import select
import signal
import sys
import time

from buoy.host.jobs.guard_input import GuardInput
from buoy.host.jobs.guard_output import SAY_MS, GuardOutput
from buoy.host.jobs.guarded_job import GuardedJob
from buoy.host.jobs.lanes import JobLanes
from buoy.host.jobs.logs import JobLogs
from buoy.host.jobs.process_tree import OwnChildren, identity, kill, kill_left_behind, memory_bytes, started_by, tree
from buoy.host.jobs.recent_ends import RecentEnds

_LOOK_S = 0.05
_LIMITS_LOOK_S = 0.2
# A log that was too long grows by a gigabyte per second or so.
_FLOOD_LOOK_S = 0.02
_TERMINATE = (signal.SIGTERM, signal.SIGHUP)
_DEFAULT = (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, *_TERMINATE)
_SUBREAPER = 36
_SHELL = "/bin/sh"


class JobGuard:
    """Starts commands, waits for them, and sees that nothing of them is left."""

    def __init__(self) -> None:
        self._jobs: dict[object, GuardedJob] = {}
        # Commands that run, by the PID of their shell.
        self._leaders: dict[int, GuardedJob] = {}
        self._waiting: list[GuardedJob] = []
        self._ending: list[GuardedJob] = []
        # Processes that left their parents and came to the guard, by PID: of which job they are.
        self._adopted: dict[int, GuardedJob] = {}
        self._limits_at = 0.0
        self._identity = identity(os.getpid())
        self._own = OwnChildren()
        # Jobs by the number in their environment: nothing that they start can lose it by chance.
        self._numbers: dict[str, GuardedJob] = {}
        self._lanes = JobLanes()
        self._logs = JobLogs()
        self._recent = RecentEnds()
        # Commands that began a moment ago, in order, whose logs have no name yet.
        self._nameless: dict[int, GuardedJob] = {}
        self._environment = dict(os.environb)
        # The input of all commands.
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._input = GuardInput()
        self._output = GuardOutput(1)
        self._closed = False
        self._wake_read, wake_write = os.pipe()
        for end in (self._wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for each in _TERMINATE:
            signal.signal(each, self._terminate)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> None:
        """Until the runner is gone and every command has ended."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while self._jobs or not self._closed:
            found = dict(poll.poll(self._patience_ms()))
            if self._wake_read in found:
                os.read(self._wake_read, 4096)
            if 0 in found:
                self._hear()
                if self._closed:
                    poll.unregister(0)
            self._reap()
            self._start_waiting()
            self._look()
            self._output.write(time.monotonic(), self._lanes.queued)

    def _patience_ms(self) -> "int | None":
        if not self._output.empty:
            return SAY_MS
        if self._waiting or self._ending or self._nameless:
            return int(_LOOK_S * 1000)
        return int(1000 * max(0.0, self._limits_at - time.monotonic())) if self._leaders else None

    def _terminate(self, *_: object) -> None:
        for job in tuple(self._jobs.values()):
            self._stop(job)

    # ---- what the runner says

    def _hear(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self._recent.write()
            self._closed = True
            self._terminate()
            return
        for order in self._input.orders(data):
            self._obey(order)

    def _obey(self, order: "dict[str, object]") -> None:
        if "command" in order:
            job = GuardedJob(order)
            self._jobs[job.id] = self._numbers[str(job.id)] = job
            if self._lanes.admit(job):
                self._begin(job)
        elif "hold" in order:
            self._lanes.held = True
        elif "bye" in order:
            self._recent = RecentEnds()
        elif order["id"] in self._jobs:
            self._stop(self._jobs[order["id"]])

    def _stop(self, job: GuardedJob) -> None:
        job.stopped = True
        if self._lanes.withdraw(job):
            self._forget(job, {"kind": "never", "number": 0}, queued=True)
        elif job.pid and job.kill_at is None:
            job.kill_at = time.monotonic() + job.grace_s
            self._ending.append(job)
            self._signal(job, signal.SIGTERM)

    # ---- start

    def _start_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self._begin(job)

    def _begin(self, job: GuardedJob) -> None:
        """Starts a command, once nothing of an earlier start of it is left."""
        if job.stopped:
            self._forget(job, {"kind": "never", "number": 0})
            return
        try:
            if not self._lock(job):
                self._waiting.append(job)
                return
            self._spawn(job)
        except OSError as error:
            text = {"kind": "error", "number": error.errno, "error": error.strerror, "file": error.filename or ""}
            self._forget(job, text)

    def _lock(self, job: GuardedJob) -> bool:
        """Opens and locks the log. False: a command of an earlier start has it, or is on its way out."""
        if job.output is None:
            job.output = self._logs.open(job.log)
        if not job.output.lock():
            kill_left_behind(job.result)
            return False
        if job.output.fresh and not job.again:
            return True
        try:
            os.unlink(job.result)
        except FileNotFoundError:
            pass
        return not kill_left_behind(job.result)

    def _spawn(self, job: GuardedJob) -> None:
        assert job.output is not None
        os.chdir(job.directory)
        job.began_at = time.monotonic()
        files = [
            (os.POSIX_SPAWN_DUP2, self._nothing, 0),
            (os.POSIX_SPAWN_DUP2, job.output.handle, 1),
            (os.POSIX_SPAWN_DUP2, job.output.handle, 2),
        ]
        job.pid = os.posix_spawn(
            _SHELL,
            [_SHELL, "-c", job.command],
            job.environment(self._environment, self._identity),
            file_actions=files,
            setpgroup=0,
            setsigdef=_DEFAULT,
        )
        self._leaders[job.pid] = job
        if not job.output.named:
            self._nameless[job.pid] = job

    # ---- end

    def _reap(self) -> None:
        """Ends of all children. Those that came to the guard on their way are of no interest."""
        ended = []
        while True:
            try:
                process, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not process:
                break
            self._adopted.pop(process, None)
            job = self._leaders.pop(process, None)
            if job is not None:
                self._nameless.pop(process, None)
                job.status = status
                job.peak_bytes = max(job.peak_bytes, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
                ended.append(job)
        if ended:
            self._adopt()
        for job in ended:
            if not self._signal(job, signal.SIGTERM):
                self._end(job)
            elif job.kill_at is None:
                job.kill_at = time.monotonic() + job.grace_s
                self._ending.append(job)

    def _look(self) -> None:
        """Kills what has outlived its grace, gives logs their names, and sees that limits are kept."""
        now = time.monotonic()
        if self._ending:
            self._adopt()
        for job in tuple(self._ending):
            assert job.kill_at is not None
            if job.status is not None and not self._signal(job, 0):
                self._end(job)
            elif now >= job.kill_at:
                self._signal(job, signal.SIGKILL)
        while self._nameless and now >= (first := next(iter(self._nameless.values()))).began_at + _LOOK_S:
            del self._nameless[first.pid]
            first.name_log()
        if now >= self._limits_at:
            self._enforce(now)

    def _enforce(self, now: float) -> None:
        """Limits of memory and of logs."""
        self._adopt()
        flood = False
        for job in tuple(self._leaders.values()):
            flood = job.trim_log() or flood
            if job.memory_max and not job.over_memory and self._memory(job) > job.memory_max:
                job.over_memory = True
                job.kill_at = now
                if job not in self._ending:
                    self._ending.append(job)
                self._signal(job, signal.SIGKILL)
        self._limits_at = now + (_FLOOD_LOOK_S if flood else _LIMITS_LOOK_S)

    def _end(self, job: GuardedJob) -> None:
        assert job.status is not None
        signalled = os.WIFSIGNALED(job.status)
        number = os.WTERMSIG(job.status) if signalled else os.WEXITSTATUS(job.status)
        now = time.monotonic()
        report: dict[str, object] = {"kind": "signal" if signalled else "code", "number": number}
        report["duration_s"] = round(now - job.began_at, 4)
        if os.path.lexists(job.result):
            report["result"] = True
        job.trim_log()
        if job.status:
            report["tail"] = job.name_log()
        self._recent.add(now, job, self._forget(job, report))

    def _forget(self, job: GuardedJob, report: "dict[str, object]", *, queued: bool = False) -> "dict[str, object]":
        """The command is over. Returns what the runner hears about it."""
        del self._jobs[job.id], self._numbers[str(job.id)]
        if job in self._ending:
            self._ending.remove(job)
        if job.output is not None:
            self._logs.close(job.output, failed=bool(job.status))
        report.update(job.facts())
        self._output.add(report)
        following = None if queued else self._lanes.left(job)
        if following is not None:
            self._begin(following)
        return report

    # ---- processes of a job

    def _signal(self, job: GuardedJob, number: int) -> bool:
        """Signals the group and all that left it. False: nothing is left."""
        found = kill(-job.pid, number)
        for process in self._strays(job):
            found = kill(process, number) or found
        return found

    def _strays(self, job: GuardedJob) -> "list[int]":
        """Processes of this job that are children of the guard, and theirs, in whatever group they are."""
        return [each for process, owner in self._adopted.items() if owner is job for each in tree(process)]

    def _adopt(self) -> None:
        """Learns which processes have become children of the guard, and kills those of commands that have ended."""
        for process in self._own.look():
            if process in self._leaders or process in self._adopted:
                continue
            guard, _, number = started_by(process).rpartition(":")
            if guard == self._identity and number not in self._numbers:
                kill(process, signal.SIGKILL)
            elif guard == self._identity:
                self._adopted[process] = self._numbers[number]
            elif len(self._jobs) == 1:
                # It has emptied its environment, or a guard that a job started has died.
                self._adopted[process] = next(iter(self._jobs.values()))

    def _memory(self, job: GuardedJob) -> int:
        found = memory_bytes({*tree(job.pid), *self._strays(job)})
        job.peak_bytes = max(job.peak_bytes, found)
        return found


def main() -> None:
    """The process of the guard."""
    JobGuard().run()
