-- What has to be known before a store is used.

-- From the tables of the catalogue: `to_regnamespace` answers from a cache of the session. That of a session which
-- waited for the migrations' lock does not know yet what the holder of the lock has made.
-- name: server
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding'),
    current_setting('server_version_num')::integer, pg_is_in_recovery(), pg_backend_pid(),
    EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname = %s),
    EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relname = 'migrations');

-- name: backend_pid
SELECT pg_backend_pid();

-- name: applied
SELECT number, additive FROM {schema}.migrations ORDER BY number;

-- name: foreign_tables
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v', 'm');

-- name: lock_migrations
SELECT pg_advisory_xact_lock(hashtextextended(%s, 7406));

-- name: make_schema
CREATE SCHEMA {schema};

-- name: make_migrations
CREATE TABLE {schema}.migrations (
    number integer PRIMARY KEY, name text NOT NULL, additive boolean NOT NULL, applied_at timestamptz NOT NULL
        DEFAULT now());

-- name: note_migration
INSERT INTO {schema}.migrations (number, name, additive) VALUES (%s, %s, %s);

-- name: begin
BEGIN;

-- name: durable
SELECT {schema}.durable();

-- name: begin_snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: now
SELECT {schema}.store_now();

-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s);

-- name: listen
LISTEN {channel};
