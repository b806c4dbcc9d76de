-- additive: no
-- What has to be one statement in one round trip. A released function is never changed: a change is a new name.
-- The planner has no statistics of a new table, and a plan outlives it: scans are therefore switched off.

CREATE FUNCTION {schema}.store_now() RETURNS double precision LANGUAGE sql STABLE
    AS $$ SELECT extract(epoch FROM clock_timestamp())::double precision $$;

-- Makes the commit of this transaction durable, whatever the session, the role or the database says. A session setting
-- would not survive a transaction pooler. `remote_apply` waits for more, and stays.
CREATE FUNCTION {schema}.durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- How work that is due at once is stored: in the order of its times, below zero.
CREATE FUNCTION {schema}.at_once(p_since double precision) RETURNS double precision LANGUAGE sql IMMUTABLE
    AS $$ SELECT least(greatest(p_since, 0.0), 4294967295.0) - 4294967296.0 $$;

CREATE FUNCTION {schema}.since(p_due double precision) RETURNS double precision LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN p_due < 0.0 THEN p_due + 4294967296.0 ELSE p_due END $$;

-- The due time of a release: `p_delay` is the distance that the writer saw, NULL parks the task. A message that the
-- owner has not seen makes the task due at once.
CREATE FUNCTION {schema}.due(
    p_now double precision, p_delay double precision, p_at_once boolean, p_unseen boolean
) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_unseen THEN least(coalesce(own.due, {schema}.at_once(p_now)), {schema}.at_once(p_now))
        ELSE own.due END
    FROM (SELECT CASE WHEN p_delay IS NULL THEN NULL WHEN p_at_once THEN {schema}.at_once(p_now + p_delay)
        ELSE p_now + p_delay END AS due) own $$;

-- The commonest commit: one run whose task stays as it is. False: nothing was changed, and `commit_runs` says why.
CREATE FUNCTION {schema}.append_run(
    p_run text, p_after bigint, p_last bigint, p_status text, p_ended boolean, p_doc bytea, p_nonce text, p_body bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint;
BEGIN
    PERFORM {schema}.durable();
    UPDATE {schema}.runs SET status = p_status, head_seq = p_last, updated_at = {schema}.store_now(), doc = p_doc
        WHERE run_id = p_run AND head_seq = p_after AND ended = p_ended RETURNING number INTO v_number;
    IF v_number IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.log (run, first_seq, last_seq, tx, nonce, body)
        VALUES (v_number, p_after + 1, p_last, pg_current_xact_id()::text::bigint, p_nonce, p_body);
    RETURN true;
END $$;

-- The commits of many runs, each of them all or nothing. A run occurs once, and the runs come sorted. `p_changes` has
-- the new runs and what becomes of tasks, each with the place of its run. Gives the fenced ones and where they stand.
CREATE FUNCTION {schema}.commit_runs(
    p_runs text[], p_after bigint[], p_last bigint[], p_status text[], p_ended boolean[], p_docs bytea[],
    p_nonces text[], p_bodies bytea[], p_changes json
) RETURNS TABLE (place integer, head bigint) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_mergejoin = off AS $$
DECLARE
    v_now double precision := {schema}.store_now();
    v_tx bigint := pg_current_xact_id()::text::bigint;
    v_numbers bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_runs)]);
    v_made bigint[] := v_numbers;
    v_row record;
BEGIN
    PERFORM {schema}.durable();
    -- In the order of ids, so that two groups never wait for each other.
    PERFORM 1 FROM {schema}.runs r WHERE r.run_id = ANY (p_runs) ORDER BY r.run_id FOR NO KEY UPDATE;
    FOR v_row IN
        WITH w AS (
            SELECT t.* FROM unnest(p_runs, p_after, p_last, p_status, p_ended, p_docs, p_nonces, p_bodies)
                WITH ORDINALITY AS t (run_id, after_seq, last_seq, status, ended, doc, nonce, body, place)),
        moved AS (
            UPDATE {schema}.runs r
            SET status = w.status, ended = w.ended, head_seq = w.last_seq, updated_at = v_now, doc = w.doc
            FROM w WHERE r.run_id = w.run_id AND r.head_seq = w.after_seq
            RETURNING r.number, w.place, w.after_seq, w.last_seq, w.nonce, w.body),
        appended AS (
            INSERT INTO {schema}.log (run, first_seq, last_seq, tx, nonce, body)
            SELECT m.number, m.after_seq + 1, m.last_seq, v_tx, m.nonce, m.body FROM moved m)
        SELECT m.place, m.number FROM moved m
    LOOP
        v_numbers[v_row.place] := v_row.number;
    END LOOP;
    IF p_changes IS NOT NULL THEN
        FOR v_row IN SELECT * FROM {schema}.create_runs(
            p_last, p_status, p_ended, p_docs, p_nonces, p_bodies, p_changes, v_now, v_tx)
        LOOP
            v_numbers[v_row.place] := v_row.number;
            v_made[v_row.place] := v_row.number;
        END LOOP;
        PERFORM {schema}.change_tasks(v_numbers, v_made, p_changes, v_now);
    END IF;
    RETURN QUERY SELECT f.place::integer, coalesce(r.head_seq, t.head_seq, 0)
        FROM unnest(v_numbers) WITH ORDINALITY AS f (number, place)
        LEFT JOIN {schema}.runs r ON r.run_id = p_runs[f.place]
        LEFT JOIN {schema}.tombstones t ON t.run_id = p_runs[f.place]
        WHERE f.number IS NULL;
END $$;

-- The new runs of a group. A run that exists, or whose id a purge has used up, is left out.
CREATE FUNCTION {schema}.create_runs(
    p_last bigint[], p_status text[], p_ended boolean[], p_docs bytea[], p_nonces text[], p_bodies bytea[],
    p_changes json, p_now double precision, p_tx bigint
) RETURNS TABLE (place integer, number bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH c AS MATERIALIZED (
        SELECT * FROM json_to_recordset(p_changes) AS c (place integer, run_id text, workflow text, stack text,
            env text, created_at double precision, parent_run text, parent_leaf text)
            WHERE c.created_at IS NOT NULL),
    made AS (
        INSERT INTO {schema}.runs AS r (run_id, workflow, stack, env, status, ended, head_seq, created_at, updated_at,
            generation, orchestrator_task_id, parent_run, parent_leaf, doc)
        SELECT c.run_id, c.workflow, c.stack, c.env, p_status[c.place], p_ended[c.place], p_last[c.place],
            c.created_at, p_now, 1, c.run_id || ':orchestrate:1', c.parent_run, c.parent_leaf, p_docs[c.place]
        FROM c WHERE NOT EXISTS (SELECT 1 FROM {schema}.tombstones t WHERE t.run_id = c.run_id)
        ORDER BY c.run_id
        ON CONFLICT (run_id) DO NOTHING RETURNING r.number, r.run_id),
    placed AS (SELECT c.place, made.number FROM made JOIN c ON c.run_id = made.run_id),
    appended AS (
        INSERT INTO {schema}.log (run, first_seq, last_seq, tx, nonce, body)
        SELECT p.number, 1, p_last[p.place], p_tx, p_nonces[p.place], p_bodies[p.place] FROM placed p)
    SELECT p.place, p.number FROM placed p;
END $$;

-- What becomes of the tasks of committed runs. `p_made`: those that are new. `kind`: h(eld), r(eleased), e(nded), or
-- s(een) for no change.
CREATE FUNCTION {schema}.change_tasks(p_numbers bigint[], p_made bigint[], p_changes json, p_now double precision)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_row record;
BEGIN
    -- In one order with `declare_dead`, which locks the tasks of a runner.
    PERFORM 1 FROM {schema}.tasks t WHERE t.run = ANY (p_numbers) ORDER BY t.run FOR NO KEY UPDATE;
    DELETE FROM {schema}.tasks t USING json_to_recordset(p_changes) AS c (place integer, kind text)
        WHERE t.run = p_numbers[c.place] AND c.kind = 'e';
    UPDATE {schema}.tasks t SET seen = greatest(t.seen, c.seen),
        holder = CASE c.kind WHEN 'h' THEN c.holder WHEN 'r' THEN NULL ELSE t.holder END,
        cause = CASE c.kind WHEN 'r' THEN c.cause ELSE t.cause END,
        evidence = CASE c.kind WHEN 'r' THEN convert_to(c.evidence, 'UTF8') ELSE t.evidence END,
        due_at = CASE c.kind
            WHEN 'r' THEN {schema}.due(p_now, c.delay, c.at_once, t.inbox_head > greatest(t.seen, c.seen))
            ELSE t.due_at END
        FROM json_to_recordset(p_changes) AS c (place integer, kind text, holder text, seen bigint, cause text,
            evidence text, delay double precision, at_once boolean)
        WHERE t.run = p_numbers[c.place] AND c.kind IN ('h', 'r', 's');
    -- A run that has no task gets one. The id of a lost task must not come back: its run begins a new generation.
    FOR v_row IN
        INSERT INTO {schema}.tasks (run, task_id, run_id, workflow, queue, stack, env, due_at, holder, seen,
            inbox_head, cause, evidence)
        SELECT n.run, c.run_id || ':orchestrate:' || n.generation, c.run_id, c.workflow, c.queue, c.stack, c.env,
            CASE c.kind WHEN 'r' THEN {schema}.due(p_now, c.delay, c.at_once, n.inbox_head > c.seen) END,
            c.holder, c.seen, n.inbox_head, coalesce(c.cause, 'woken'),
            convert_to(coalesce(c.evidence, '{}'), 'UTF8')
        FROM json_to_recordset(p_changes) AS c (place integer, run_id text, kind text, holder text, seen bigint,
            cause text, evidence text, delay double precision, at_once boolean, workflow text, queue text, stack text,
            env text)
        CROSS JOIN LATERAL (
            SELECT r.number AS run, r.generation + CASE WHEN p_made[c.place] IS NULL THEN 1 ELSE 0 END AS generation,
                CASE WHEN p_made[c.place] IS NULL THEN
                    coalesce((SELECT max(i.number) FROM {schema}.inbox i WHERE i.run = r.number), 0) ELSE 0
                END AS inbox_head
            FROM {schema}.runs r WHERE r.number = p_numbers[c.place]
                AND NOT EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.run = r.number)) n
        WHERE c.kind IN ('h', 'r')
        RETURNING run, task_id
    LOOP
        UPDATE {schema}.runs r SET generation = r.generation + 1, orchestrator_task_id = v_row.task_id
            WHERE r.number = v_row.run AND r.orchestrator_task_id IS DISTINCT FROM v_row.task_id;
    END LOOP;
END $$;

-- Due tasks for a runner, from the queues in turn, so that a full queue cannot starve another one.
CREATE FUNCTION {schema}.claim_tasks(
    p_runner text, p_queues text[], p_env text, p_stack text, p_workflows text[], p_specs boolean, p_excluded text[],
    p_limit integer
) RETURNS TABLE (task_id text, run_id text, workflow text, queue text, due_at double precision, cause text,
    evidence bytea, claimed_at double precision) LANGUAGE plpgsql SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_now double precision := {schema}.store_now();
    v_runs bigint[];
BEGIN
    SELECT array_agg(c.run) INTO v_runs FROM (
        SELECT d.run FROM (
            SELECT q.place, d.run, d.since, row_number() OVER (PARTITION BY q.place ORDER BY d.since, d.run) AS turn
            FROM unnest(p_queues) WITH ORDINALITY AS q (queue, place)
            CROSS JOIN LATERAL (
                SELECT n.run, n.since FROM (
                    SELECT t.run, {schema}.since(t.due_at) AS since FROM {schema}.tasks t
                    WHERE t.holder IS NULL AND t.queue = q.queue AND t.due_at < 0.0
                        AND t.env IS NOT DISTINCT FROM p_env
                        AND (p_stack IS NULL OR t.stack IS NULL OR t.stack = p_stack)
                        AND (p_workflows IS NULL OR t.workflow = ANY (p_workflows)
                            OR (p_specs AND t.workflow LIKE 'spec:%' AND NOT t.workflow = ANY (p_excluded)))
                    ORDER BY t.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED) n
                UNION ALL
                SELECT k.run, k.since FROM (
                    SELECT t.run, t.due_at AS since FROM {schema}.tasks t
                    WHERE t.holder IS NULL AND t.queue = q.queue AND t.due_at >= 0.0 AND t.due_at <= v_now
                        AND t.env IS NOT DISTINCT FROM p_env
                        AND (p_stack IS NULL OR t.stack IS NULL OR t.stack = p_stack)
                        AND (p_workflows IS NULL OR t.workflow = ANY (p_workflows)
                            OR (p_specs AND t.workflow LIKE 'spec:%' AND NOT t.workflow = ANY (p_excluded)))
                    ORDER BY t.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED) k) d) d
        ORDER BY d.turn, d.place LIMIT p_limit) c;
    IF v_runs IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.runners r WHERE r.runner_id = p_runner AND r.gone_at IS NULL FOR SHARE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM {schema}.durable();
    -- A task that comes back is due at once, at its old place in the queue.
    RETURN QUERY
    WITH claimed AS (
        UPDATE {schema}.tasks t SET holder = p_runner,
            due_at = CASE WHEN t.due_at < 0.0 THEN t.due_at ELSE {schema}.at_once(t.due_at) END
        WHERE t.run = ANY (v_runs)
        RETURNING t.run, t.task_id, t.run_id, t.workflow, t.queue, t.due_at, t.cause, t.evidence)
    SELECT c.task_id, c.run_id, c.workflow, c.queue, least({schema}.since(c.due_at), v_now), c.cause, c.evidence, v_now
    FROM claimed c ORDER BY array_position(v_runs, c.run);
END $$;

-- Gives a task back, or ends it. False: the runner does not hold it, or the log does not end at `p_head`.
CREATE FUNCTION {schema}.release_task(
    p_run text, p_runner text, p_head bigint, p_ended boolean, p_delay double precision, p_at_once boolean,
    p_seen bigint, p_cause text, p_evidence bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_number bigint;
    v_now double precision := {schema}.store_now();
BEGIN
    PERFORM {schema}.durable();
    SELECT r.number INTO v_number FROM {schema}.runs r
        WHERE r.run_id = p_run AND (p_head IS NULL OR r.head_seq = p_head) FOR NO KEY UPDATE;
    IF v_number IS NULL THEN
        RETURN false;
    END IF;
    IF p_ended THEN
        DELETE FROM {schema}.tasks t WHERE t.run = v_number AND t.holder = p_runner;
    ELSE
        UPDATE {schema}.tasks t SET holder = NULL, seen = greatest(t.seen, p_seen), cause = p_cause,
            evidence = p_evidence,
            due_at = {schema}.due(v_now, p_delay, p_at_once, t.inbox_head > greatest(t.seen, p_seen))
            WHERE t.run = v_number AND t.holder = p_runner;
    END IF;
    RETURN FOUND;
END $$;

-- Puts a message into an inbox, and wakes the run if no runner holds it. `outcome`: sent, duplicate, unknown, or full
-- for an inbox of `p_head_max` messages, whose room the caller has to compute.
CREATE FUNCTION {schema}.send_message(
    p_run text, p_dedupe text, p_kind text, p_by text, p_body bytea, p_head_max bigint
) RETURNS TABLE (outcome text, number bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_run bigint;
    v_head bigint;
    v_known bigint;
    v_now double precision := {schema}.store_now();
BEGIN
    PERFORM {schema}.durable();
    -- The lock on the run orders its messages.
    SELECT r.number INTO v_run FROM {schema}.runs r WHERE r.run_id = p_run FOR NO KEY UPDATE;
    IF v_run IS NULL THEN
        RETURN QUERY SELECT 'unknown', 0::bigint;
        RETURN;
    END IF;
    SELECT i.number INTO v_known FROM {schema}.inbox i WHERE i.run = v_run AND i.dedupe = p_dedupe;
    IF v_known IS NOT NULL THEN
        RETURN QUERY SELECT 'duplicate', v_known;
        RETURN;
    END IF;
    SELECT coalesce(max(i.number), 0) INTO v_head FROM {schema}.inbox i WHERE i.run = v_run;
    -- A run that ended has no task and consumes nothing: waiting for room would be in vain.
    IF v_head >= p_head_max AND EXISTS (SELECT 1 FROM {schema}.tasks t WHERE t.run = v_run) THEN
        RETURN QUERY SELECT 'full', v_head;
        RETURN;
    END IF;
    INSERT INTO {schema}.inbox (run, number, dedupe, kind, by, sent_at, body)
        VALUES (v_run, v_head + 1, p_dedupe, p_kind, p_by, v_now, p_body);
    UPDATE {schema}.tasks t SET inbox_head = v_head + 1,
        due_at = CASE WHEN w.wakes THEN {schema}.at_once(v_now) ELSE t.due_at END,
        cause = CASE WHEN w.wakes THEN 'woken' ELSE t.cause END,
        evidence = CASE WHEN w.wakes THEN '{}'::bytea ELSE t.evidence END
        FROM (SELECT s.run, s.holder IS NULL AND (s.due_at IS NULL OR s.due_at > v_now) AS wakes
            FROM {schema}.tasks s WHERE s.run = v_run FOR UPDATE) w
        WHERE t.run = w.run;
    RETURN QUERY SELECT 'sent', v_head + 1;
END $$;

-- Declares a runner gone and makes due whatever it held. NULL: it has beaten since.
CREATE FUNCTION {schema}.declare_dead(p_runner text, p_why text, p_cause text, p_evidence bytea, p_beat bigint)
RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    v_now double precision := {schema}.store_now();
    v_released bigint;
BEGIN
    PERFORM {schema}.durable();
    PERFORM 1 FROM {schema}.runners r WHERE r.runner_id = p_runner FOR UPDATE;
    IF p_beat IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {schema}.runners r
            WHERE r.runner_id = p_runner AND r.gone_at IS NULL AND r.beat_number = p_beat) THEN
        RETURN NULL;
    END IF;
    UPDATE {schema}.runners SET gone_at = v_now, gone_why = p_why WHERE runner_id = p_runner AND gone_at IS NULL;
    PERFORM 1 FROM {schema}.tasks t WHERE t.holder = p_runner ORDER BY t.run FOR NO KEY UPDATE;
    UPDATE {schema}.tasks t SET holder = NULL, cause = p_cause, evidence = p_evidence,
        due_at = least(coalesce(t.due_at, {schema}.at_once(v_now)), {schema}.at_once(v_now))
        WHERE t.holder = p_runner;
    GET DIAGNOSTICS v_released = ROW_COUNT;
    RETURN v_released;
END $$;
