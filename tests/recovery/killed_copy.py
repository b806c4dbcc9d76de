"""`buoy copy` in processes that get SIGKILL at one of their writes.

Reads lines of JSON, `[NUMBER, "before" or "after", ARGUMENTS...]`, and forks a process for each; number 0 is never
reached. Answers each line with what that process said, and its return code.
In a bucket or a folder each object that is written or deleted is a write. In a database, and through a server, it is
each call that changes the store: one transaction.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from buoy.cli.main import main
from buoy.stores.http.calls import Calls
from buoy.stores.objects.buckets.folder import FolderBucket
from buoy.stores.objects.buckets.s3 import S3Bucket
from buoy.stores.postgres.archive import PostgresArchive
from buoy.stores.postgres.schedules import PostgresSchedules
from buoy.stores.postgres.store import PostgresStore
from buoy.stores.sqlite.archive import SqliteArchive
from buoy.stores.sqlite.schedules import SqliteSchedules
from buoy.stores.sqlite.store import SqliteStore

_STORE, _ARCHIVE, _SCHEDULES = (
    ("commit", "send", "define", "release"),
    ("import_run", "add_tombstone"),
    ("save_schedule",),
)
_BUCKET = ("create", "replace", "put", "delete", "delete_many")
_WRITES: dict[type, tuple[str, ...]] = {
    FolderBucket: _BUCKET, S3Bucket: _BUCKET, SqliteStore: _STORE, PostgresStore: _STORE, SqliteArchive: _ARCHIVE,
    PostgresArchive: _ARCHIVE, SqliteSchedules: _SCHEDULES, PostgresSchedules: _SCHEDULES, Calls: ("call",),
}  # fmt: skip
_CHANGES = frozenset((*_STORE, *_ARCHIVE, *_SCHEDULES))


def arm(number: int, phase: str) -> None:
    """The write of that number is the last deed of this process, or the one that it does not do any more."""
    left = [number]

    def counted(cls: type, name: str) -> Callable[..., Any]:
        below = getattr(cls, name)

        async def call(self: object, *args: Any, **kwargs: Any) -> Any:
            if cls is Calls and args[0].rpartition(".")[2] not in _CHANGES:
                return await below(self, *args, **kwargs)
            left[0] -= 1
            strikes = left[0] == 0
            if strikes and phase == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await below(self, *args, **kwargs)
            if strikes:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    for cls, names in _WRITES.items():
        for name in names:
            setattr(cls, name, counted(cls, name))


def serve() -> None:
    """A fork instead of a new interpreter: most of a start is imports."""
    for line in sys.stdin:
        number, phase, *arguments = json.loads(line)
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                arm(number, phase)
                main(arguments)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            print(json.dumps([code, said.read().decode()]), flush=True)


if __name__ == "__main__":
    serve()
