"""One command as the guard of jobs sees it, and its log. Standard library only: the guard imports nothing else."""

import os

_TAIL_BYTES = 1000


class GuardedJob:
    """One command: waits for its lock, runs, is stopped, and is swept away."""

    def __init__(self, order: "dict[str, object]") -> None:
        self.id = order["id"]
        self.command = str(order["command"])
        self.directory = str(order["directory"])
        self.log = str(order["log"])
        self.result = str(order["result"])
        self.variables: dict[str, str] = dict(order["variables"])  # type: ignore[call-overload]
        self.grace_s = float(order["grace_s"])  # type: ignore[arg-type]
        self.memory_max = int(order["memory_max"])  # type: ignore[call-overload]
        # The log, locked. The command has it, too: the lock stays as long as any process of the command.
        self.output: int | None = None
        self.pid = 0
        self.status: int | None = None
        self.peak_bytes = 0
        self.stopped = False
        self.over_memory = False
        # When SIGKILL follows.
        self.kill_at: float | None = None


def open_log(path: str) -> "tuple[int, bool]":
    """The log, and whether this call made it: then nothing of an earlier start can be left."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600), True
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        return os.open(path, flags | os.O_CREAT, 0o600), False
    except FileExistsError:
        return os.open(path, flags, 0o600), False


def tail(path: str) -> str:
    """The last lines of a log."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
