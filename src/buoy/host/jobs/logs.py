"""Log files of commands. A file gets its name when its command has lasted for a moment, has written or has failed.

Why: making a file can cost half as much as a short command (0.4 ms on ext4 while many files have just been removed).
Most short commands write nothing, and the next one takes their file.
Invariants: a log is locked from its first moment on, as long as the guard or any process of its command has it. A file
that holds a byte is given to no other command. Standard library only: the guard imports nothing else.
"""

import fcntl
import os
import sys

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
_NAMELESS = getattr(os, "O_TMPFILE", 0)
_TAIL_BYTES = 1000
# Of a log that was too long: so much of its end stays, and a cut is moved by so much at most to the end of a line.
_END_BYTES = 64 * 1024
_LINE_BYTES = 8 * 1024


class JobLog:
    """The log of one command. `fresh`: no earlier start of the command has one."""

    def __init__(self, path: str, handle: int, *, fresh: bool, named: bool) -> None:
        self.path = path
        self.handle = handle
        self.fresh = fresh
        self.named = named
        # Of a log that was too long: where its beginning ends, and how much is gone after that.
        self._head = 0
        self._mark = b""
        self._dropped = 0

    def lock(self) -> bool:
        """False: a process of an earlier start has it."""
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def name(self) -> None:
        """Gives the file its name. If another guard made one of that name since, this one takes its place."""
        if self.named:
            return
        self.named = True
        # A folder is named, so that the call follows the link in /proc.
        source, spare = f"/proc/self/fd/{self.handle}", f"{self.path}.{os.getpid()}"
        try:
            try:
                os.link(source, self.path, src_dir_fd=self.handle)
            except FileExistsError:
                os.link(source, spare, src_dir_fd=self.handle)
                os.rename(spare, self.path)
        except OSError as error:
            # The disk is full, or the folder is gone: the command matters more than its log.
            print(f"buoy: the log {self.path} is lost: {error}; make room on its disk", file=sys.stderr)

    def trim(self, most: int) -> bool:
        """Drops the middle of a log that is longer than that, and says so there. Whether it was.

        Commands append, so they continue behind it. What they write between two of these calls may be lost.
        """
        try:
            size = os.fstat(self.handle).st_size
        except OSError:
            return False  # a file on a network disk that another machine removed: there is nothing to shorten
        if size <= most:
            return False
        try:
            self._drop_middle(size, most)
        except OSError as error:
            # The next look tries again.
            print(f"buoy: the log {self.path} is too long and cannot be shortened: {error}", file=sys.stderr)
        return True

    def _drop_middle(self, size: int, most: int) -> None:
        if not self._head:
            first = os.pread(self.handle, min(_LINE_BYTES, most // 4), most // 2 - min(_LINE_BYTES, most // 4))
            self._head = most // 2 - len(first) + (first.rfind(b"\n") + 1 or len(first))
        kept = min(_END_BYTES, most // 4)
        last = os.pread(self.handle, kept, size - kept)
        last = last[last.find(b"\n", 0, _LINE_BYTES) + 1 :]
        self._dropped += os.fstat(self.handle).st_size - self._head - len(self._mark) - len(last)
        self._mark = f"\n[buoy: about {self._dropped:,} bytes dropped here: a log keeps at most {most:,}]\n".encode()
        os.ftruncate(self.handle, self._head)
        os.write(self.handle, self._mark + last)

    def tail(self) -> str:
        """Its last lines."""
        try:
            with open(self.path, "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                return file.read(_TAIL_BYTES).decode(errors="replace").strip()
        except OSError:
            return ""


class JobLogs:
    """The logs of one guard, and files without a name that wait for a command."""

    def __init__(self) -> None:
        self._spare: dict[str, list[int]] = {}
        # Logs without a name whose commands run.
        self._young: dict[str, JobLog] = {}
        self._nameless = bool(_NAMELESS) and os.path.isdir("/proc/self/fd")

    def open(self, path: str) -> JobLog:
        """The log at this path."""
        young = self._young.pop(path, None)
        if young is not None:
            young.name()
        try:
            return JobLog(path, os.open(path, _FLAGS), fresh=False, named=True)
        except FileNotFoundError:
            pass
        folder = path.rpartition("/")[0]
        spare = self._spare.get(folder)
        if spare:
            return self._nameless_log(path, spare.pop())
        os.makedirs(folder, 0o700, exist_ok=True)
        if self._nameless:
            try:
                return self._nameless_log(path, os.open(folder, _FLAGS | _NAMELESS, 0o600))
            except OSError:
                self._nameless = False  # this file system has no such files
        try:
            return JobLog(path, os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600), fresh=True, named=True)
        except FileExistsError:
            return JobLog(path, os.open(path, _FLAGS), fresh=False, named=True)

    def _nameless_log(self, path: str, handle: int) -> JobLog:
        log = self._young[path] = JobLog(path, handle, fresh=True, named=False)
        return log

    def close(self, log: JobLog, *, failed: bool) -> None:
        """The command has ended."""
        if self._young.get(log.path) is log:
            del self._young[log.path]
        if not log.named and not failed and not os.fstat(log.handle).st_size:
            self._spare.setdefault(log.path.rpartition("/")[0], []).append(log.handle)
            return
        log.name()
        os.close(log.handle)
