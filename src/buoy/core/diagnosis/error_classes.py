"""Error classes: what kind of failure a leaf had, and how often recovery may try it again by itself.

Invariants: what was recorded with the error wins, then how a process ended, then the name of the exception. An error
without any of these is `unknown`, and the run's policy decides.
Absent on purpose: the step's own retries. They came before; this is about final failures without a reaction.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, cast, get_args

from buoy.core.log.events import ErrorInfo

ErrorClass: TypeAlias = Literal[
    "transient",  # may well succeed when tried again
    "permanent",  # will fail again
    "resource",  # needs more memory or time
    "misconfiguration",  # a person must correct something outside of the run
    "cancelled",
    "orphaned",  # no process and no stored definition knows the workflow
    "unknown",
]
CLASSES: tuple[str, ...] = get_args(ErrorClass)

# How often recovery tries a leaf again by itself, for each class, counted over the whole log.
CLASS_BOUNDS: dict[str, int] = {"transient": 3, "resource": 2}
# A leaf that ran out of something may need twice as much each time, but never more than this. It is noted in the audit;
# nothing here sets limits of memory or time that could be raised.
MORE_FACTOR_MAX = 4

_BY_TYPE: dict[ErrorClass, tuple[str, ...]] = {
    "transient": (
        "BlockingIOError", "BrokenPipeError", "ClientConnectorError", "ConnectError", "ConnectTimeout",
        "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
        "DeadlockDetected", "EndpointConnectionError", "IncompleteRead", "InterruptedError", "OperationalError",
        "PoolTimeout", "RateLimitError", "ReadError", "ReadTimeout", "RemoteDisconnected", "RemoteProtocolError",
        "SerializationFailure", "ServerDisconnectedError", "ServiceUnavailable", "ThrottlingException",
        "TimeoutError", "TooManyRequests", "URLError", "Unavailable", "WriteTimeout", "gaierror", "timeout",
    ),
    "permanent": (
        "ArithmeticError", "AssertionError", "AttributeError", "BadInput", "BadSpec", "IndexError", "KeyError",
        "LookupError", "NameError", "NotImplementedError", "NotJson", "OverflowError", "RecursionError", "SyntaxError",
        "TooLarge", "TypeError", "UnicodeDecodeError", "UnicodeEncodeError", "ValidationError", "ValueError",
        "ZeroDivisionError",
    ),
    "resource": ("MemoryError", "OutOfMemory", "OutOfMemoryError", "TimeLimitExceeded"),
    "misconfiguration": (
        "FileNotFoundError", "ImportError", "IsADirectoryError", "ModuleNotFoundError", "NoCredentialsError",
        "NotADirectoryError", "PermissionError", "SSLCertVerificationError", "UnknownWorkflow",
    ),
    "cancelled": ("Cancelled", "CancelledError"),
}  # fmt: skip
_TYPES: dict[str, ErrorClass] = {name: kind for kind, names in _BY_TYPE.items() for name in names}

# Out of <sysexits.h> and the shell: temporary failure, unavailable; usage, data; not executable, not found, config.
_EXIT_CODES: dict[int, ErrorClass] = {
    75: "transient", 69: "transient", 64: "permanent", 65: "permanent",
    126: "misconfiguration", 127: "misconfiguration", 77: "misconfiguration", 78: "misconfiguration",
}  # fmt: skip
# A SIGKILL from outside Buoy is mostly the kernel's, out of memory. Then the limits of CPU time and file size.
# A request to end (SIGHUP, SIGINT, SIGTERM) says nothing against the work.
_SIGNALS: dict[int, ErrorClass] = {
    9: "resource", 24: "resource", 25: "resource", 1: "transient", 2: "transient", 15: "transient",
}  # fmt: skip
_SIGNAL_NAMES = {"SIGKILL": 9, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGHUP": 1, "SIGINT": 2, "SIGTERM": 15}


def classify(error: ErrorInfo) -> ErrorClass:
    """The class of an error. A recorded word that is no class is ignored."""
    if error.kind in CLASSES and error.kind != "unknown":
        return cast(ErrorClass, error.kind)
    found = _by_exit(error) or _TYPES.get(error.type.rpartition(".")[2])
    if found is not None:
        return found
    return "unknown" if error.retryable else "permanent"


def _by_exit(error: ErrorInfo) -> ErrorClass | None:
    """By how a process ended."""
    facts = error.facts
    if facts.get("out_of_memory") is True:
        return "resource"
    signal, code = facts.get("signal"), facts.get("exit_code")
    if isinstance(signal, str):
        signal = _SIGNAL_NAMES.get(signal)
    if isinstance(signal, int) and not isinstance(signal, bool):
        return _SIGNALS.get(signal)
    if isinstance(code, int) and not isinstance(code, bool):
        return _SIGNALS.get(code - 128) if code > 128 else _EXIT_CODES.get(code)
    return None
