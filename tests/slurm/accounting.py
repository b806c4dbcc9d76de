"""Accounting of a private cluster: MariaDB and slurmdbd, both on loopback and in the cluster's folder.

Invariants: the data are thrown away with the folder, so neither server syncs to the disk. Every process is a child of
the cluster, which ends it.
"""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.patience import wait_until

PROGRAMS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb", "mariadb-install-db")

_DATABASE = """\
[mariadbd]
user={user}
datadir={folder}/database
tmpdir={folder}/database.tmp
socket={folder}/database.sock
pid-file={folder}/mariadbd.pid
log-error={folder}/mariadbd.log
bind-address=127.0.0.1
port={database}
skip-name-resolve
performance_schema=OFF
innodb_buffer_pool_size=32M
innodb_log_file_size=8M
innodb_lock_wait_timeout=900
innodb_flush_log_at_trx_commit=0
innodb_doublewrite=0
innodb_flush_method=nosync
"""

_DAEMON = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={daemon}
CommunicationParameters=NoInAddrAny
SlurmUser={user}
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CommitDelay=1
"""

_FIRST = (
    "create database slurm_acct_db; create user slurm@'127.0.0.1' identified by 'slurm'; "
    "grant all on slurm_acct_db.* to slurm@'127.0.0.1'"
)

Spawn = Callable[..., None]


class Accounting:
    """The two servers. `settings`: the lines of slurm.conf that make the controller report to them."""

    # In the order in which they end: neither loses anything that anybody wants.
    names = ("slurmdbd", "mariadbd")

    def __init__(self, folder: Path, cluster: str, daemon_port: int, database_port: int) -> None:
        self._folder = folder
        self._cluster = cluster
        values = {"folder": folder, "user": getpass.getuser(), "daemon": daemon_port, "database": database_port}
        self._options = folder / "my.cnf"
        self._options.write_text(_DATABASE.format(**values))
        # A MariaDB that starts removes the temporary tables of any other one in the same folder.
        (folder / "database.tmp").mkdir()
        daemon = folder / "slurmdbd.conf"
        daemon.touch(mode=0o600)  # slurmdbd refuses a file that others can read
        daemon.write_text(_DAEMON.format(**values))
        self.settings = (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            # Not AuthInfo: this names the socket of munge for the traffic with slurmdbd.
            f"AccountingStoragePort={daemon_port}\nAccountingStoragePass={folder}/munge.sock"
        )

    def start(self, spawn: Spawn, env: Mapping[str, str]) -> None:
        """Returns when the cluster is known to slurmdbd. munged must run."""
        # `--force`: the name of this machine need not have an address.
        self._run(env, "mariadb-install-db", f"--defaults-file={self._options}", f"--user={getpass.getuser()}",
                  "--force", "--skip-test-db", "--auth-root-authentication-method=normal")  # fmt: skip
        spawn("mariadbd", "mariadbd", f"--defaults-file={self._options}")
        ask = ("mariadb", "--no-defaults", "-S", str(self._folder / "database.sock"), "-u", "root", "-e")
        wait_until(lambda: self._answers(env, *ask, "select 1"), "mariadbd")
        self._run(env, *ask, _FIRST)
        spawn("slurmdbd", "slurmdbd", "-D")
        wait_until(lambda: self._answers(env, "sacctmgr", "-n", "show", "cluster"), "slurmdbd")
        self._run(env, "sacctmgr", "-i", "add", "cluster", self._cluster)

    def _answers(self, env: Mapping[str, str], *words: str) -> bool:
        return subprocess.run(words, env=dict(env), cwd=self._folder, capture_output=True, check=False).returncode == 0

    def _run(self, env: Mapping[str, str], *words: str) -> None:
        done = subprocess.run(
            words, env=dict(env), cwd=self._folder, capture_output=True, text=True, errors="replace", check=False
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-500:]}"


def limits_memory() -> Path | None:
    """The memory control group of this process, if it is one of version 1 that this process can divide."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        own = Path(f"/sys/fs/cgroup/memory{place}")
        if controllers == "memory" and (own / "memory.limit_in_bytes").exists() and os.access(own, os.W_OK):
            return own
    return None
