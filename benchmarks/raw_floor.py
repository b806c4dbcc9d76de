"""The raw floor: how fast this disk commits through stdlib sqlite3, with nothing on top.

One row is about what a journal writes for one step: a run id, a sequence number, a kind and a
payload of 100 bytes. WAL with synchronous=FULL syncs the log at every commit, so a row that was
committed survives a power cut. No durable engine that commits once per step can be faster than
`single`; one that groups commits may come near `batch`.

Usage: raw_floor.py --dir DIR single N | batch N SIZE
"""

import argparse
import sqlite3
from pathlib import Path

from stopwatch import Reading, Stopwatch, report

PAYLOAD = b"x" * 100
INSERT = "INSERT INTO event (run, seq, kind, payload) VALUES (?, ?, ?, ?)"


def single_commits(n: int, folder: Path) -> float:
    """Rows per second with one row in each commit."""
    return batch_commits(n, 1, folder)


def batch_commits(n: int, batch: int, folder: Path) -> float:
    """Rows per second with `batch` rows in each commit; the last commit may hold fewer."""
    connection = _open(folder / f"raw-{batch}.db")
    try:
        _commit(connection, [-1])  # creates the log file, which is not what is measured
        watch = Stopwatch()
        for first in range(0, n, batch):
            _commit(connection, range(first, min(first + batch, n)))
        return watch.rate(n)
    finally:
        connection.close()


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    assert mode == "wal", f"{path}: expected journal_mode wal, found {mode}; use a local disk"
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE event (run TEXT, seq INTEGER, kind TEXT, payload BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID"
    )
    return connection


def _commit(connection: sqlite3.Connection, seqs: "range | list[int]") -> None:
    connection.execute("BEGIN IMMEDIATE")
    for seq in seqs:
        connection.execute(INSERT, ("run-1", seq, "StepCompleted", PAYLOAD))
    connection.execute("COMMIT")


def main() -> None:
    parser = argparse.ArgumentParser(description="The raw commit floor of this disk.")
    parser.add_argument("--dir", type=Path, required=True, help="where the database goes")
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("single").add_argument("n", type=int)
    batch = commands.add_parser("batch")
    batch.add_argument("n", type=int)
    batch.add_argument("size", type=int)
    args = parser.parse_args()
    report(_measure(args))


def _measure(args: argparse.Namespace) -> Reading:
    if args.what == "single":
        return {"rows_per_s": single_commits(args.n, args.dir), "rows": args.n}
    return {"rows_per_s": batch_commits(args.n, args.size, args.dir), "rows": args.n, "batch": args.size}


if __name__ == "__main__":
    main()
