-- Whole runs, brought in and removed.

-- name: lock_run
SELECT number, head_seq, ended FROM {schema}.runs WHERE run_id = %s FOR UPDATE;

-- name: create_copy
INSERT INTO {schema}.runs (run_id, workflow, stack, env, status, ended, created_at, updated_at, parent_run,
    parent_leaf, doc, head_seq, generation, orchestrator_task_id)
    VALUES (%(run_id)s, %(workflow)s, %(stack)s, %(env)s, %(status)s, %(ended)s, %(created_at)s,
        {schema}.store_now(), %(parent_run)s, %(parent_leaf)s, %(doc)s, %(head_seq)s, %(generation)s, %(task_id)s)
    ON CONFLICT (run_id) DO NOTHING RETURNING number;

-- name: append_copy
INSERT INTO {schema}.log (run, first_seq, last_seq, tx, nonce, body)
    SELECT %b::bigint, c.first_seq, c.last_seq, pg_current_xact_id()::text::bigint, c.nonce, c.body
    FROM unnest(%b::bigint[], %b::bigint[], %b::text[], %b::bytea[]) AS c (first_seq, last_seq, nonce, body);

-- name: send_copies
INSERT INTO {schema}.inbox (run, number, dedupe, kind, by, sent_at, body)
    SELECT %b::bigint, m.number, m.dedupe, m.kind, m.by, m.sent_at, m.body
    FROM unnest(%b::bigint[], %b::text[], %b::text[], %b::text[], %b::double precision[], %b::bytea[])
        AS m (number, dedupe, kind, by, sent_at, body);

-- name: log_end
SELECT max(last_seq) FROM {schema}.log WHERE run = %s;

-- name: rewrite
UPDATE {schema}.runs SET workflow = %(workflow)s, stack = %(stack)s, env = %(env)s, status = %(status)s,
    ended = %(ended)s, created_at = %(created_at)s, parent_run = %(parent_run)s, parent_leaf = %(parent_leaf)s,
    doc = %(doc)s, head_seq = %(head_seq)s WHERE number = %(number)s;

-- name: sort_task
UPDATE {schema}.tasks SET workflow = %(workflow)s, queue = %(queue)s, stack = %(stack)s, env = %(env)s
    WHERE run = %(number)s;

-- name: has_task
SELECT 1 FROM {schema}.tasks WHERE run = %s;

-- name: delete_log
DELETE FROM {schema}.log WHERE run = %s;

-- name: delete_inbox
DELETE FROM {schema}.inbox WHERE run = %s;

-- name: delete_task
DELETE FROM {schema}.tasks WHERE run = %s;

-- name: delete_run
DELETE FROM {schema}.runs WHERE number = %s;

-- name: add_tombstone
INSERT INTO {schema}.tombstones (run_id, head_seq, body) VALUES (%s, %s, %s);

-- name: tombstone
SELECT body FROM {schema}.tombstones WHERE run_id = %s;

-- name: tombstones
SELECT body, run_id FROM {schema}.tombstones WHERE run_id > %s ORDER BY run_id LIMIT %s;

-- name: add_foreign_tombstone
INSERT INTO {schema}.tombstones (run_id, head_seq, body) SELECT %(run_id)s, %(head_seq)s, %(body)s
WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE run_id = %(run_id)s) ON CONFLICT DO NOTHING RETURNING 1;

-- name: raw_run
SELECT number, run_id, workflow, status, ended, head_seq, created_at, updated_at, generation, orchestrator_task_id,
    parent_run, parent_leaf, stack, env, doc FROM {schema}.runs WHERE run_id = %s;

-- name: raw_log
SELECT first_seq, last_seq, nonce, body FROM {schema}.log WHERE run = %s ORDER BY first_seq;

-- name: raw_inbox
SELECT number, dedupe, kind, by, sent_at, body FROM {schema}.inbox WHERE run = %s ORDER BY number;

-- name: raw_task
SELECT task_id, run_id, workflow, queue, stack, env, due_at, holder, seen, inbox_head, cause,
    convert_from(evidence, 'LATIN1') FROM {schema}.tasks WHERE run = %s;
