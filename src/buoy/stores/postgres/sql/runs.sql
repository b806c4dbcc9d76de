-- Runs, logs and inboxes: how they are read and listed.

-- fragment: columns
r.number, r.doc, r.orchestrator_task_id, r.generation, t.holder,
    CASE WHEN t.holder IS NULL THEN
        CASE WHEN t.due_at < 0.0 THEN least({schema}.since(t.due_at), {schema}.store_now()) ELSE t.due_at END END,
    coalesce(t.inbox_head, (SELECT max(i.number) FROM {schema}.inbox i WHERE i.run = r.number), 0),
    t.run IS NOT NULL, r.updated_at, r.run_id

-- Parameters that are NULL narrow nothing: the planner sees the values and leaves such conditions out. It takes
-- IS NOT DISTINCT FROM for a condition that one row meets, so that each page of 100,000 runs read and sorted them all.
-- fragment: narrow
(%(workflow)s::text IS NULL OR r.workflow = %(workflow)s)
    AND (%(parent)s::text IS NULL OR r.parent_run = %(parent)s)
    AND (%(text)s::text IS NULL OR strpos(r.run_id, %(text)s) > 0)
    AND (%(created_from)s::double precision IS NULL OR r.created_at >= %(created_from)s)
    AND (%(created_before)s::double precision IS NULL OR r.created_at < %(created_before)s)
    AND (%(updated_before)s::double precision IS NULL OR r.updated_at < %(updated_before)s)
    AND (%(stack)s::text IS NULL OR r.stack IS NULL OR r.stack = %(stack)s)
    AND (NOT %(by_env)s::boolean OR r.env = %(env)s::text OR (r.env IS NULL AND %(env)s::text IS NULL))
    AND r.number < %(before)s

-- fragment: page
ORDER BY r.number DESC LIMIT %(limit)s

-- name: runs
SELECT number, doc, orchestrator_task_id, generation, holder, due_at, inbox_head, has_task, updated_at, run_id
    FROM {schema}.read_runs(%b::text[]);

-- name: page_all
SELECT {columns} FROM {schema}.runs r LEFT JOIN {schema}.tasks t ON t.run = r.number WHERE {narrow} {page};

-- name: page_active
SELECT {columns} FROM {schema}.runs r LEFT JOIN {schema}.tasks t ON t.run = r.number
    WHERE NOT r.ended AND r.status = ANY (%(statuses)s) AND {narrow} {page};

-- name: page_ended
SELECT {columns} FROM {schema}.runs r LEFT JOIN {schema}.tasks t ON t.run = r.number
    WHERE r.ended AND r.ended_status = %(status)s AND -r.number > -%(before)s AND {narrow}
    ORDER BY -r.number LIMIT %(limit)s;

-- name: page_held
SELECT {columns} FROM {schema}.tasks t JOIN {schema}.runs r ON r.number = t.run
    WHERE t.holder = %(holder)s AND (%(statuses)s::text[] IS NULL OR r.status = ANY (%(statuses)s)) AND {narrow} {page};

-- name: count_active
SELECT r.status, count(*) FROM {schema}.runs r
    WHERE NOT r.ended AND r.status = ANY (%(statuses)s) AND {narrow} GROUP BY r.status;

-- name: count_ended
SELECT r.ended_status, count(*) FROM {schema}.runs r
    WHERE r.ended AND r.ended_status = %(status)s AND {narrow} GROUP BY r.ended_status;

-- name: count_held
SELECT r.status, count(*) FROM {schema}.tasks t JOIN {schema}.runs r ON r.number = t.run
    WHERE t.holder = %(holder)s AND (%(statuses)s::text[] IS NULL OR r.status = ANY (%(statuses)s)) AND {narrow}
    GROUP BY r.status;

-- name: run_of_number
SELECT run_id FROM {schema}.runs WHERE number = %s;

-- name: logs
SELECT place, last_seq, body FROM {schema}.read_logs(%b::text[], %b::bigint[], %b::bigint[]);

-- '~' sorts after every character of an id.
-- name: run_ids
SELECT run_id FROM {schema}.runs WHERE run_id >= %(prefix)s AND run_id < %(prefix)s || '~' ORDER BY run_id
    LIMIT %(limit)s;

-- name: inboxes
SELECT place, kind, dedupe, body, sent_at, number, by
    FROM {schema}.read_inboxes(%b::text[], %b::bigint[], %b::bigint[]);

-- name: send_message
SELECT outcome, number FROM {schema}.send_message(%b::text, %b::text, %b::text, %b::text, %b::bytea, %b::bigint);

-- name: define
INSERT INTO {schema}.definitions (version, body) VALUES (%s, %s) ON CONFLICT DO NOTHING;

-- name: definition
SELECT body FROM {schema}.definitions WHERE version = %s;

-- Below the oldest transaction under way nothing can appear any more: the cursor stays below it.
-- name: moves_end
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1,
    coalesce((SELECT max(tx) FROM {schema}.log), 0);

-- name: moves
SELECT l.tx, r.run_id FROM {schema}.log l LEFT JOIN {schema}.runs r ON r.number = l.run
    WHERE l.tx > %s ORDER BY l.tx FETCH FIRST %s ROWS WITH TIES;
