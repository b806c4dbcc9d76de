"""Guard: refuses I/O while workflow code runs, and advises to put it in a step.

One audit hook for the process, made when the first workflow runs, checks a flag of the current thread. Files that
Python itself opens during that time (imports, tracebacks, warnings) pass. C extensions that raise no audit event escape
it; a divergence at replay reveals them.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType

from buoy.errors import NotAllowedHere

_REFUSED = frozenset(
    {
        "builtins.input",
        "open",
        "os.listdir",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.scandir",
        "os.system",
        "os.posix_spawn",
        "os.fork",
        "shutil.copyfile",
        "shutil.rmtree",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "sqlite3.connect",
        "subprocess.Popen",
        "time.sleep",
        "_thread.start_joinable_thread",
        "_thread.start_new_thread",
        "urllib.Request",
    }
)
# Modules on whose behalf Python reads files while ordinary code runs.
_PYTHONS_OWN = frozenset(
    {"importlib._bootstrap", "importlib._bootstrap_external", "linecache", "traceback", "warnings"}
)
_LOOK_UP_FRAMES_MAX = 60


class _Flag:
    """Whether workflow code runs."""

    __slots__ = ("on",)

    def __init__(self) -> None:
        self.on = False


class _Flags(threading.local):
    """Each thread's own. Asking for it takes longer than to set it."""

    def __init__(self) -> None:
        self.flag = _Flag()


GUARD = _Flags()
_hook_made = False


def _hook(event: str, args: tuple[object, ...]) -> None:
    if event not in _REFUSED or not GUARD.flag.on:
        return
    frame = sys._getframe(1)
    if _python_itself(frame):
        return
    if event == "time.sleep":
        raise NotAllowedHere(
            "workflow code may not block (time.sleep): write `await asyncio.sleep(...)`, or `buoy.sleep(...)` in a "
            "plain `def`; a wait that belongs to a call of something else: put it in a step"
        )
    what = f"{event}({args[0]!r})" if args and isinstance(args[0], str | bytes) else event
    what = _caller_in("subprocess", frame) or what
    raise NotAllowedHere(f"workflow code may not do I/O ({what[:120]}): put it in a step, whose result is recorded")


def _python_itself(frame: FrameType | None) -> bool:
    for _ in range(_LOOK_UP_FRAMES_MAX):
        if frame is None:
            return False
        name = frame.f_globals.get("__name__")
        if name in _PYTHONS_OWN or name == "logging":
            return True
        if name == "buoy.engine.code.private_loop":
            return False
        frame = frame.f_back
    return False


def _caller_in(module: str, frame: FrameType | None) -> str | None:
    """The function of that module which the code called: what the code wrote, not what became of it."""
    found = None
    for _ in range(_LOOK_UP_FRAMES_MAX):
        if frame is None:
            break
        if frame.f_globals.get("__name__") == module:
            found = f"{module}.{frame.f_code.co_qualname.partition('.')[0]}"
        frame = frame.f_back
    return found


class _Switch:
    """Turns the flag of this thread on or off for a while."""

    __slots__ = ("_before", "_to")

    def __init__(self, to: bool) -> None:
        self._to = to
        self._before = False

    def __enter__(self) -> None:
        flag = GUARD.flag
        self._before, flag.on = flag.on, self._to

    def __exit__(self, *_: object) -> None:
        GUARD.flag.on = self._before


def make_guard() -> None:
    """From now on the flag of each thread counts. Once is enough, and it lasts as long as the process."""
    global _hook_made
    if not _hook_made:
        sys.addaudithook(_hook)
        _hook_made = True


def guarded() -> _Switch:
    """Workflow code runs inside."""
    make_guard()
    return _Switch(True)


def unguarded() -> _Switch:
    """The engine itself works inside, called from workflow code."""
    return _Switch(False)
