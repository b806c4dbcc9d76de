"""The tables of the SQLite store, how they came to be, and how a file is opened.

Invariants: a migration that was released is never edited, a change is a new one; all of them run in one transaction, so
that two processes that open a new file at once do not disturb each other. What a sweep reads is indexed by partial
indexes over active runs only, so that a million ended runs cost it nothing. `runs.ended` is a column of its own, since
an index on `status` would be rewritten at every commit.

`number` stands for the run in the other tables: an index over integers has a third of the pages, and the pages are
what a commit must sync.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from buoy.errors import StoreUnusable
from buoy.stores.sqlite.errors import busy

# "BUOY": lets `file` and us tell a store from any other SQLite database.
APPLICATION_ID = 0x42554F59
# Pages of the write-ahead log after which a commit also copies them into the file. Measured: a log that is kept short
# is written over and over at the same place, which syncs quicker than one that grows; and a small run writes 15 pages,
# so that fewer than one of a hundred meets a checkpoint.
CHECKPOINT_PAGES = 2_000
WAL_BYTES_KEPT = 32 * 1024 * 1024
# The writer meets the same pages again. A reader mostly reads a log once, and memory that is touched for the first time
# costs more than a page that the system has.
CACHE_KIB = 16 * 1024
READER_CACHE_KIB = 2 * 1024
BUSY_TIMEOUT_S = 30.0
OPEN_PAUSE_S = 0.02

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "INSERT INTO meta VALUES ('store_id', lower(hex(randomblob(16))))",
        """CREATE TABLE runs (
            number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, workflow TEXT NOT NULL, status TEXT NOT NULL,
            ended INTEGER NOT NULL, head_seq INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            generation INTEGER NOT NULL, orchestrator_task_id TEXT, parent_run TEXT, parent_leaf TEXT,
            doc BLOB NOT NULL)""",
        "CREATE INDEX runs_active ON runs (number, run_id) WHERE ended = 0",
        "CREATE INDEX runs_ended ON runs (status, number) WHERE ended = 1",
        "CREATE INDEX runs_workflow ON runs (workflow, number)",
        """CREATE TABLE log (
            run INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, nonce TEXT,
            body BLOB NOT NULL)""",
        "CREATE UNIQUE INDEX log_order ON log (run, first_seq)",
        """CREATE TABLE inbox (
            run INTEGER NOT NULL, number INTEGER NOT NULL, dedupe TEXT NOT NULL, kind TEXT NOT NULL, by TEXT,
            sent_at REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run, number)) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX inbox_dedupe ON inbox (run, dedupe)",
        """CREATE TABLE tasks (
            run INTEGER PRIMARY KEY, task_id TEXT NOT NULL, run_id TEXT NOT NULL, workflow TEXT NOT NULL,
            queue TEXT NOT NULL, stack TEXT, env TEXT, due_at REAL, holder TEXT,
            seen INTEGER NOT NULL, inbox_head INTEGER NOT NULL, cause TEXT NOT NULL, evidence BLOB NOT NULL)""",
        """CREATE INDEX tasks_due ON tasks (queue, due_at, workflow, stack, env)
            WHERE holder IS NULL AND due_at IS NOT NULL""",
        "CREATE INDEX tasks_held ON tasks (holder) WHERE holder IS NOT NULL",
        "CREATE INDEX tasks_poked ON tasks (holder, run_id) WHERE inbox_head > seen",
        """CREATE TABLE runners (
            runner_id TEXT PRIMARY KEY, info BLOB NOT NULL, registered_at REAL NOT NULL, beat_at REAL NOT NULL,
            beat BLOB NOT NULL, gone_at REAL, gone_why TEXT, suspected_at REAL, suspected_beat INTEGER)""",
        "CREATE INDEX runners_living ON runners (runner_id) WHERE gone_at IS NULL",
        "CREATE INDEX runners_gone ON runners (gone_at) WHERE gone_at IS NOT NULL",
        # For people with the sqlite3 shell; nothing in Buoy reads it.
        """CREATE VIEW events AS SELECT runs.run_id AS run_id, json_extract(e.value, '$.seq') AS seq,
            json_extract(e.value, '$.body.type') AS type, json_extract(e.value, '$.at') AS at,
            coalesce(json_extract(e.value, '$.branch'), 0) AS branch, json_extract(e.value, '$.nonce') AS nonce,
            json_extract(e.value, '$.body') AS body
            FROM log JOIN runs ON runs.number = log.run, json_each(CAST(log.body AS TEXT)) AS e""",
    ),
    (
        """CREATE TABLE tombstones (
            run_id TEXT PRIMARY KEY, head_seq INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID""",
        """CREATE TABLE schedules (
            name TEXT PRIMARY KEY, number INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX runs_parent ON runs (parent_run, number) WHERE parent_run IS NOT NULL",
    ),
    ("CREATE TABLE definitions (version TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",),
    (
        # The commonest commit, of one run that moves on, as one statement with the fence in it. It changes nothing if
        # the run is not where the writer thinks. By name as well: a number may be another run's after a purge.
        """CREATE VIEW going_on AS SELECT number, run_id, head_seq AS after_seq, ended, status, head_seq AS last_seq,
            updated_at, doc, NULL AS nonce, NULL AS body FROM runs""",
        """CREATE TRIGGER go_on INSTEAD OF INSERT ON going_on BEGIN
            UPDATE runs SET status = new.status, head_seq = new.last_seq, updated_at = new.updated_at, doc = new.doc
                WHERE number = new.number AND run_id = new.run_id AND head_seq = new.after_seq AND ended = new.ended;
            INSERT INTO log (run, first_seq, last_seq, nonce, body)
                SELECT new.number, new.after_seq + 1, new.last_seq, new.nonce, new.body WHERE changes() = 1;
        END""",
    ),
    (
        # For people with an SQL shell; nothing in Buoy reads it. `state` is for queries written as `state->>'...'`.
        # A runner's record that is no JSON gives NULL: it must not hide the other runs.
        """CREATE VIEW workflow_runs AS SELECT workflow_run_id, workflow, status, last_heartbeat, runner_pid, host,
            runner_id, progress, json_object('last_heartbeat', last_heartbeat, 'runner_pid', runner_pid,
                'runner_id', runner_id, 'host', host, 'progress', json(progress)) AS state
            FROM (SELECT runs.run_id AS workflow_run_id, runs.workflow AS workflow, runs.status AS status,
                strftime('%Y-%m-%dT%H:%M:%fZ', runners.beat_at, 'unixepoch') AS last_heartbeat,
                CASE WHEN json_valid(CAST(runners.info AS TEXT))
                    THEN json_extract(CAST(runners.info AS TEXT), '$.pid') END AS runner_pid,
                CASE WHEN json_valid(CAST(runners.info AS TEXT))
                    THEN json_extract(CAST(runners.info AS TEXT), '$.host') END AS host,
                tasks.holder AS runner_id,
                CASE WHEN json_valid(CAST(runners.beat AS TEXT))
                    THEN json_extract(CAST(runners.beat AS TEXT), '$.progress."' || runs.run_id || '"')
                    END AS progress
                FROM runs LEFT JOIN tasks ON tasks.run = runs.number
                    LEFT JOIN runners ON runners.runner_id = tasks.holder)""",
    ),
    (
        # Tokens of servers, by digest: see `ports/tokens`.
        """CREATE TABLE IF NOT EXISTS tokens (
            id TEXT PRIMARY KEY, number INTEGER NOT NULL, body BLOB NOT NULL) WITHOUT ROWID""",
    ),
)
# Every store has these, whatever its version: a migration drops no table.
FIRST_TABLES = frozenset({"meta", "runs", "log", "inbox", "tasks", "runners"})
# Later migrations only add what people ask for with an SQL shell: a file of this schema is read as it is.
READABLE_FROM = 4

# A transaction of its own: nothing has to be started and committed around it.
GO_ON = "INSERT INTO going_on VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Connection(sqlite3.Connection):
    """A connection with a cursor at hand, for statements that give no rows: making one each time takes as long as some
    of them do."""

    hand: sqlite3.Cursor


def connect(name: str | Path, *, uri: bool = False) -> Connection:
    """A connection whose statements begin and end transactions themselves."""
    connection = sqlite3.connect(
        name,
        uri=uri,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=Connection,
    )
    connection.hand = connection.cursor()
    return connection


def connect_durably(path: Path) -> Connection:
    """A connection with the settings that durability rests on."""
    connection = connect(path)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def prepare(connection: sqlite3.Connection, path: Path, pause: Callable[[float], object]) -> None:
    """Makes the file a store of today's schema, or says why it cannot be one. `pause` waits for other processes."""
    waited_s = 0.0
    while True:
        try:
            return _prepare(connection, path)
        except sqlite3.OperationalError as error:
            # SQLite does not wait by itself for a change of the journal mode.
            if not busy(error) or waited_s >= BUSY_TIMEOUT_S:
                raise
        pause(OPEN_PAUSE_S)
        waited_s += OPEN_PAUSE_S


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    _check_kind(connection, path)
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreUnusable(
            f"{path} cannot keep a write-ahead log (its journal mode stays {mode!r}); put it on a local disk"
        )
    if _version(connection) != len(MIGRATIONS):
        _migrate(connection, path)


def check_current(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses what would have to be changed before it can be read."""
    _check_kind(connection, path)
    version = _version(connection)
    if version < READABLE_FROM:
        raise StoreUnusable(
            f"{path} has schema {version}, and cannot be brought to {len(MIGRATIONS)} where this user may not write; "
            "open it once as a user who may"
        )


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses foreign databases and newer stores before anything is changed."""
    # In this order: another process may make the file a store in between, and gives it tables and mark at once.
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    kind = connection.execute("PRAGMA application_id").fetchone()[0]
    # The mark alone proves nothing: another program may use the same number.
    if tables and (kind != APPLICATION_ID or not tables >= FIRST_TABLES):
        raise StoreUnusable(f"{path} is an SQLite database of something else; name another file")
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise StoreUnusable(
            f"{path} has schema {version}, this Buoy knows {len(MIGRATIONS)}: a newer Buoy wrote it; upgrade this one"
        )


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Again, under the lock: another process may have been quicker.
        _check_kind(connection, path)
        for statements in MIGRATIONS[_version(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found
