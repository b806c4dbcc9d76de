-- additive: no
-- The tables. No index holds a column that every commit changes, so that a commit is a heap-only update.

CREATE TABLE {schema}.runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL UNIQUE,
    workflow text NOT NULL,
    stack text,
    env text,
    status text NOT NULL,
    ended boolean NOT NULL,
    -- An index on `status` itself would be written at every change of an active run.
    ended_status text GENERATED ALWAYS AS (CASE WHEN ended THEN status END) STORED,
    head_seq bigint NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    generation integer NOT NULL,
    orchestrator_task_id text,
    parent_run text COLLATE "C",
    parent_leaf text,
    doc bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX runs_active ON {schema}.runs (number) WHERE NOT ended;
-- By the negative number: no other index has this order, so that the planner cannot walk over active runs instead.
CREATE INDEX runs_ended ON {schema}.runs (ended_status, (-number)) WHERE ended;
CREATE INDEX runs_workflow ON {schema}.runs (workflow, number);
CREATE INDEX runs_parent ON {schema}.runs (parent_run, number) WHERE parent_run IS NOT NULL;

-- `tx`: the transaction that appended the row. The change feed reads the log in this order.
CREATE TABLE {schema}.log (
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    tx bigint NOT NULL,
    nonce text,
    body bytea NOT NULL,
    PRIMARY KEY (run, first_seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
CREATE INDEX log_tx ON {schema}.log (tx);

CREATE TABLE {schema}.inbox (
    run bigint NOT NULL,
    number bigint NOT NULL,
    dedupe text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    by text,
    sent_at double precision NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, number)
);
CREATE UNIQUE INDEX inbox_dedupe ON {schema}.inbox (run, dedupe);

-- `due_at`: below zero, shifted by 2^32, for work that is due at once whatever the clock says.
CREATE TABLE {schema}.tasks (
    run bigint PRIMARY KEY,
    task_id text NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    workflow text NOT NULL,
    queue text NOT NULL,
    stack text,
    env text,
    due_at double precision,
    holder text COLLATE "C",
    seen bigint NOT NULL,
    inbox_head bigint NOT NULL,
    cause text NOT NULL,
    evidence bytea NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tasks_due ON {schema}.tasks (queue, due_at) WHERE holder IS NULL AND due_at IS NOT NULL;
CREATE INDEX tasks_held ON {schema}.tasks (holder, run) WHERE holder IS NOT NULL;
CREATE INDEX tasks_unread ON {schema}.tasks (holder, run_id) WHERE inbox_head > seen;

-- Host, pid and beat number repeat what `info` and `beat` say, for statements that need them.
CREATE TABLE {schema}.runners (
    runner_id text COLLATE "C" PRIMARY KEY,
    info bytea NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    registered_at double precision NOT NULL,
    beat_at double precision NOT NULL,
    beat_number bigint NOT NULL,
    beat bytea NOT NULL,
    gone_at double precision,
    gone_why text,
    suspected_at double precision,
    suspected_beat bigint
) WITH (fillfactor = 50);
CREATE INDEX runners_living ON {schema}.runners (registered_at) WHERE gone_at IS NULL;
CREATE INDEX runners_gone ON {schema}.runners (gone_at) WHERE gone_at IS NOT NULL;

CREATE TABLE {schema}.tombstones (
    run_id text COLLATE "C" PRIMARY KEY,
    head_seq bigint NOT NULL,
    body bytea NOT NULL
);

CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    number bigint NOT NULL,
    body bytea NOT NULL
);

CREATE TABLE {schema}.definitions (
    version text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);
