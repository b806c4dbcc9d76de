"""Files of a store that are removed or replaced under a living process: nothing is acknowledged from then on."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Harm = Callable[[Path], None]


class Writer:
    """A real process that commits a run for each line that it is sent."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.lost_store", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def commit(self) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def writer(url: str) -> Iterator[Writer]:
    made = Writer(url)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def remove(*names: str) -> Harm:
    def harm(place: Path) -> None:
        for name in names:
            (place / name).unlink()

    return harm


def replace_by_another_store(place: Path) -> None:
    sqlite3.connect(place / "other.db").close()
    (place / "other.db").touch()
    (place / "other.db").replace(place / "s.db")


def move_away(place: Path) -> None:
    (place / "s.db").rename(place / "moved.db")


SQLITE: dict[str, Harm] = {
    "all files removed": remove("s.db", "s.db-wal", "s.db-shm"),
    "the database removed": remove("s.db"),
    "the write-ahead log removed": remove("s.db-wal"),
    "the database replaced": replace_by_another_store,
    "the database moved away": move_away,
}


def replace_folder(place: Path) -> None:
    (place / "s").rename(place / "moved")
    shutil.copytree(place / "moved", place / "s")


FOLDER: dict[str, Harm] = {
    "the folder removed": lambda place: shutil.rmtree(place / "s"),
    "the folder moved away": lambda place: (place / "s").rename(place / "moved") and None,
    "the folder replaced by a copy": replace_folder,
    "its mark removed": remove("s/buoy.json"),
}
CASES = [("sqlite", name) for name in SQLITE] + [("file", name) for name in FOLDER]


@pytest.mark.parametrize(("kind", "how"), CASES)
def test_nothing_is_acknowledged_after_the_store_was_lost(tmp_path: Path, kind: str, how: str) -> None:
    url = f"sqlite:///{tmp_path / 's.db'}" if kind == "sqlite" else f"file://{tmp_path / 's'}"
    with writer(url) as process:
        assert process.commit() == "acknowledged run-1"
        assert process.commit() == "acknowledged run-2"
        (SQLITE if kind == "sqlite" else FOLDER)[how](tmp_path)
        for _ in range(3):
            told = process.commit()
            assert told.startswith("lost ") and " is lost: " in told, told
        if kind == "file":
            assert not list((tmp_path / "s").rglob("run-[345]*")), "nothing was written into what stands there now"
