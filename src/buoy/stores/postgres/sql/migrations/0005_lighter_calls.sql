-- additive: yes
-- Commits and reads that cost the server less. Older code calls the functions that came before.

-- As `commit_runs`, but only the tasks that change are locked. What mostly becomes of a task is given by the place of its
-- run, without JSON: the tasks of `p_gone` end, those of `p_held` are held by `p_holder`. A claim has mostly seen to the
-- latter before; `p_holds` is read if it has not. `p_changed` are the places in `p_changes`. Both are texts of JSON.
CREATE FUNCTION {schema}.commit_group(
    p_runs text[], p_after bigint[], p_last bigint[], p_status text[], p_ended boolean[], p_docs bytea[],
    p_nonces text[], p_bodies bytea[], p_gone integer[], p_held integer[], p_holder text, p_holds text,
    p_changed integer[], p_changes text
) RETURNS TABLE (place integer, head bigint) LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_mergejoin = off AS $$
DECLARE
    v_now double precision := {schema}.store_now();
    v_tx bigint := pg_current_xact_id()::text::bigint;
    v_none bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_runs)]);
    v_numbers bigint[] := v_none;
    v_made bigint[] := v_none;
    v_some bigint[];
    v_loose integer[];
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
            p_last, p_status, p_ended, p_docs, p_nonces, p_bodies, p_changes::json, v_now, v_tx)
        LOOP
            v_numbers[v_row.place] := v_row.number;
            v_made[v_row.place] := v_row.number;
        END LOOP;
    END IF;
    IF p_held IS NOT NULL THEN
        SELECT array_agg(h.place) INTO v_loose FROM unnest(p_held) AS h (place)
            WHERE NOT EXISTS (SELECT 1 FROM {schema}.tasks t
                WHERE t.run = v_numbers[h.place] AND t.holder = p_holder);
    END IF;
    IF p_gone IS NOT NULL OR p_changed IS NOT NULL OR v_loose IS NOT NULL THEN
        -- In one order with `declare_dead`, which locks the tasks of a runner.
        SELECT array_agg(v_numbers[c.place]) INTO v_some FROM unnest(p_gone || p_changed || v_loose) AS c (place);
        PERFORM 1 FROM {schema}.tasks t WHERE t.run = ANY (v_some) ORDER BY t.run FOR NO KEY UPDATE;
    END IF;
    IF p_changed IS NOT NULL THEN
        PERFORM {schema}.change_tasks({schema}.only_at(v_numbers, p_changed), v_made, p_changes::json, v_now);
    END IF;
    IF v_loose IS NOT NULL THEN
        PERFORM {schema}.change_tasks({schema}.only_at(v_numbers, v_loose), v_made, p_holds::json, v_now);
    END IF;
    IF p_gone IS NOT NULL THEN
        SELECT array_agg(v_numbers[g.place]) INTO v_some FROM unnest(p_gone) AS g (place);
        DELETE FROM {schema}.tasks t WHERE t.run = ANY (v_some);
    END IF;
    RETURN QUERY SELECT f.place::integer, coalesce(r.head_seq, t.head_seq, 0)
        FROM unnest(v_numbers) WITH ORDINALITY AS f (number, place)
        LEFT JOIN {schema}.runs r ON r.run_id = p_runs[f.place]
        LEFT JOIN {schema}.tombstones t ON t.run_id = p_runs[f.place]
        WHERE f.number IS NULL;
END $$;

-- The numbers at these places; the others are NULL.
CREATE FUNCTION {schema}.only_at(p_numbers bigint[], p_places integer[]) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_found bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_numbers)]);
    v_place integer;
BEGIN
    FOREACH v_place IN ARRAY p_places LOOP
        v_found[v_place] := p_numbers[v_place];
    END LOOP;
    RETURN v_found;
END $$;

-- What a runner reads of each run that it takes. As functions, since a session plans the statements inside of them once.
-- As statements of their own they were planned at each call, which took the server longer than to carry them out.

CREATE FUNCTION {schema}.read_runs(p_runs text[]) RETURNS TABLE (
    number bigint, doc bytea, orchestrator_task_id text, generation integer, holder text, due_at double precision,
    inbox_head bigint, has_task boolean, updated_at double precision, run_id text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY SELECT r.number, r.doc, r.orchestrator_task_id, r.generation, t.holder,
        CASE WHEN t.holder IS NULL THEN
            CASE WHEN t.due_at < 0.0 THEN least({schema}.since(t.due_at), {schema}.store_now()) ELSE t.due_at END END,
        coalesce(t.inbox_head, (SELECT max(i.number) FROM {schema}.inbox i WHERE i.run = r.number), 0),
        t.run IS NOT NULL, r.updated_at, r.run_id
        FROM {schema}.runs r LEFT JOIN {schema}.tasks t ON t.run = r.number
        WHERE r.run_id = ANY (p_runs);
END $$;

-- From the commit that holds event `after + 1`, which may have begun earlier.
CREATE FUNCTION {schema}.read_logs(p_runs text[], p_after bigint[], p_commits bigint[]) RETURNS TABLE (
    place bigint, last_seq bigint, body bytea
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY SELECT w.place, l.last_seq, l.body
        FROM unnest(p_runs, p_after, p_commits) WITH ORDINALITY AS w (run_id, after_seq, commits, place)
        JOIN {schema}.runs r ON r.run_id = w.run_id
        CROSS JOIN LATERAL (SELECT c.first_seq, c.last_seq, c.body FROM {schema}.log c
            WHERE c.run = r.number AND c.first_seq >= coalesce((SELECT max(e.first_seq) FROM {schema}.log e
                WHERE e.run = r.number AND e.first_seq <= w.after_seq + 1), 0)
            ORDER BY c.first_seq LIMIT w.commits) l
        ORDER BY w.place, l.first_seq;
END $$;

CREATE FUNCTION {schema}.read_inboxes(p_runs text[], p_after bigint[], p_most bigint[]) RETURNS TABLE (
    place bigint, kind text, dedupe text, body bytea, sent_at double precision, number bigint, by text
) LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    RETURN QUERY SELECT w.place, i.kind, i.dedupe, i.body, i.sent_at, i.number, i.by
        FROM unnest(p_runs, p_after, p_most) WITH ORDINALITY AS w (run_id, after_number, most, place)
        JOIN {schema}.runs r ON r.run_id = w.run_id
        CROSS JOIN LATERAL (SELECT m.* FROM {schema}.inbox m WHERE m.run = r.number AND m.number > w.after_number
            ORDER BY m.number LIMIT w.most) i
        ORDER BY w.place, i.number;
END $$;
