-- additive: yes
-- For people with an SQL shell; nothing in Buoy reads these.

-- A record that is not JSON gives NULL: it must not hide the other runs.
CREATE FUNCTION {schema}.as_json(p_data bytea) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN convert_from(p_data, 'UTF8')::json;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

CREATE VIEW {schema}.workflow_runs AS
SELECT workflow_run_id, workflow, status, last_heartbeat, runner_pid, host, runner_id, progress,
    json_build_object('last_heartbeat', last_heartbeat, 'runner_pid', runner_pid, 'runner_id', runner_id,
        'host', host, 'progress', progress) AS state
FROM (
    SELECT r.run_id AS workflow_run_id, r.workflow, r.status,
        to_char(to_timestamp(n.beat_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS last_heartbeat,
        n.pid AS runner_pid, n.host, t.holder AS runner_id,
        {schema}.as_json(n.beat) -> 'progress' -> r.run_id AS progress
    FROM {schema}.runs r
    LEFT JOIN {schema}.tasks t ON t.run = r.number
    LEFT JOIN {schema}.runners n ON n.runner_id = t.holder) shown;

CREATE VIEW {schema}.events AS
SELECT r.run_id, (e.value ->> 'seq')::bigint AS seq, e.value -> 'body' ->> 'type' AS type,
    (e.value ->> 'at')::double precision AS at, coalesce((e.value ->> 'branch')::bigint, 0) AS branch,
    e.value ->> 'nonce' AS nonce, e.value -> 'body' AS body
FROM {schema}.log l JOIN {schema}.runs r ON r.number = l.run
CROSS JOIN LATERAL json_array_elements({schema}.as_json(l.body)) AS e (value);
