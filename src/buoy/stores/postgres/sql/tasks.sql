-- Tasks and runners.

-- name: claim_tasks
SELECT task_id, run_id, workflow, queue, due_at, cause, evidence, claimed_at
    FROM {schema}.claim_tasks(%b::text, %b::text[], %b::text, %b::text, %b::text[], %b::boolean, %b::text[],
        %b::integer);

-- name: release_task
SELECT {schema}.release_task(%b::text, %b::text, %b::bigint, %b::boolean, %b::double precision, %b::boolean,
    %b::bigint, %b::text, %b::bytea);

-- name: unread_runs
SELECT run_id FROM {schema}.tasks WHERE holder = %s AND inbox_head > seen;

-- name: mark_read
UPDATE {schema}.tasks SET seen = greatest(seen, %s)
    WHERE run = (SELECT number FROM {schema}.runs WHERE run_id = %s) AND holder = %s;

-- name: register
INSERT INTO {schema}.runners AS r (runner_id, info, host, pid, registered_at, beat_at, beat_number, beat)
    SELECT %(runner)s, %(info)s, %(host)s, %(pid)s, n.now, n.now, 0, %(beat)s
        FROM (SELECT {schema}.store_now() AS now) n
    ON CONFLICT (runner_id) DO UPDATE
    SET info = excluded.info, host = excluded.host, pid = excluded.pid, suspected_at = NULL, suspected_beat = NULL
    WHERE r.gone_at IS NULL;

-- name: beat
UPDATE {schema}.runners SET beat_at = {schema}.store_now(), beat_number = %s, beat = %s, suspected_at = NULL,
    suspected_beat = NULL WHERE runner_id = %s AND gone_at IS NULL;

-- fragment: runner
info, registered_at, beat_at, beat, gone_at, gone_why, suspected_at, suspected_beat, runner_id

-- name: runners_living
SELECT {runner} FROM {schema}.runners WHERE gone_at IS NULL ORDER BY registered_at;

-- name: runners_gone
SELECT {runner} FROM {schema}.runners WHERE gone_at IS NOT NULL ORDER BY gone_at DESC LIMIT %s;

-- A note about the same beat stays as it is.
-- name: suspect
UPDATE {schema}.runners SET suspected_beat = %(beat)s,
    suspected_at = CASE WHEN suspected_beat = %(beat)s THEN suspected_at ELSE {schema}.store_now() END
    WHERE runner_id = %(runner)s AND gone_at IS NULL AND beat_number = %(beat)s RETURNING {runner};

-- name: declare_dead
SELECT {schema}.declare_dead(%b::text, %b::text, %b::text, %b::bytea, %b::bigint);

-- fragment: retired
SELECT r.runner_id FROM {schema}.runners r WHERE r.gone_at IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.holder = r.runner_id)
    ORDER BY r.gone_at DESC LIMIT %(limit)s OFFSET %(keep)s

-- name: may_retire
{retired};

-- name: retire
DELETE FROM {schema}.runners WHERE gone_at IS NOT NULL AND runner_id IN ({retired});

-- One step per holder, not per task: each jumps to the next name in the index.
-- name: orphaned
WITH RECURSIVE h (holder) AS (
    (SELECT holder FROM {schema}.tasks WHERE holder IS NOT NULL ORDER BY holder LIMIT 1)
    UNION ALL
    SELECT (SELECT t.holder FROM {schema}.tasks t WHERE t.holder > h.holder ORDER BY t.holder LIMIT 1)
        FROM h WHERE h.holder IS NOT NULL)
SELECT h.holder, r.runner_id IS NOT NULL FROM h LEFT JOIN {schema}.runners r ON r.runner_id = h.holder
    WHERE h.holder IS NOT NULL AND (r.runner_id IS NULL OR r.gone_at IS NOT NULL);

-- name: held_by
SELECT run_id FROM {schema}.tasks WHERE holder = %s ORDER BY run LIMIT %s;

-- What has no log is no run of ours, though it has a document.
-- name: without_task
SELECT r.run_id FROM {schema}.runs r WHERE NOT r.ended AND r.head_seq > 0
    AND NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.run = r.number) ORDER BY r.number LIMIT %s;

-- name: lock_runner
SELECT gone_at IS NULL FROM {schema}.runners WHERE runner_id = %s FOR SHARE;

-- name: adopt_held
UPDATE {schema}.tasks SET holder = NULL, cause = 'taken_over', evidence = %s,
    due_at = least(coalesce(due_at, {schema}.at_once({schema}.store_now())),
        {schema}.at_once({schema}.store_now()))
    WHERE holder = %s AND run_id = %s;

-- name: lock_bare
SELECT r.number, r.generation, r.doc FROM {schema}.runs r
    WHERE r.run_id = %s AND NOT r.ended AND r.head_seq > 0
    AND NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.run = r.number) FOR NO KEY UPDATE;

-- name: new_task
INSERT INTO {schema}.tasks (run, task_id, run_id, workflow, queue, stack, env, due_at, holder, seen, inbox_head, cause,
    evidence)
    SELECT %(run)s, %(task_id)s, %(run_id)s, %(workflow)s, %(queue)s, %(stack)s, %(env)s,
        CASE WHEN %(at_once)s THEN {schema}.at_once({schema}.store_now()) ELSE %(due_at)s::double precision END,
        %(holder)s, CASE WHEN %(all_seen)s THEN i.head ELSE 0 END, i.head, %(cause)s, %(evidence)s
    FROM (SELECT coalesce(max(number), 0) AS head FROM {schema}.inbox WHERE run = %(run)s) i
    ON CONFLICT (run) DO NOTHING;

-- name: set_task
UPDATE {schema}.runs SET generation = %s, orchestrator_task_id = %s WHERE number = %s;
