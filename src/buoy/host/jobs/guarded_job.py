"""One command as the guard of jobs sees it. Standard library only: the guard imports nothing else."""

from buoy.host.jobs.logs import JobLog
from buoy.host.jobs.process_tree import GUARD, RESULT


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
        self.memory_max = int(order.get("memory_max", 0))  # type: ignore[call-overload]
        self.log_max = int(order.get("log_max", 0))  # type: ignore[call-overload]
        # Commands of one lane share places; empty: it begins at once.
        self.lane = str(order.get("lane", ""))
        self.places = int(order.get("places", 0))  # type: ignore[call-overload]
        self.began_at = 0.0
        # The store and the job that this command is about.
        self.mark = str(order.get("mark", ""))
        # An earlier runner has started it: something of it may be left.
        self.again = bool(order.get("again", False))
        # The log, locked. The command has it, too: the lock stays as long as any process of the command.
        self.output: JobLog | None = None
        self.pid = 0
        self.status: int | None = None
        self.peak_bytes = 0
        self.stopped = False
        self.over_memory = False
        # When SIGKILL follows.
        self.kill_at: float | None = None

    def environment(self, base: "dict[bytes, bytes]", guard: str) -> "dict[bytes, bytes]":
        """The variables of the command; what it starts is known by them."""
        own = {name.encode(): value.encode() for name, value in self.variables.items()}
        own[RESULT] = self.result.encode()
        own[GUARD] = f"{guard}:{self.id}".encode()
        return {**base, **own}

    def facts(self) -> "dict[str, object]":
        """What every report has. Flags only if they are true: there are many reports, and most are short."""
        found = {"id": self.id, "peak_bytes": self.peak_bytes}
        if self.stopped:
            found["stopped"] = True
        if self.over_memory:
            found["over_memory"] = True
        return found

    def trim_log(self) -> bool:
        """Whether its log was longer than it may be."""
        return bool(self.log_max) and self.output is not None and self.output.trim(self.log_max)

    def name_log(self) -> str:
        """Gives the log its name. Returns its last lines, if the command failed."""
        if self.output is None:
            return ""
        self.output.name()
        return self.output.tail() if self.status else ""
