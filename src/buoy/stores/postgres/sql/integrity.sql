-- Is the server set as it must be, and does what is stored twice agree?

-- name: settings
SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('max_connections')::integer,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
    pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
    has_table_privilege('{schema}.runs', 'INSERT') AND has_table_privilege('{schema}.runs', 'UPDATE');

-- A standby has the setting too, and demands nothing.
-- name: demanded_replicas
SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE current_setting('synchronous_standby_names') END;

-- What a role may not see is NULL.
-- name: replicas
SELECT coalesce(application_name, '?'), coalesce(sync_state, 'unknown'),
    coalesce(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn), 0)::bigint FROM pg_stat_replication
    WHERE NOT pg_is_in_recovery();

-- name: dead_rows
SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
    WHERE schemaname = %s AND n_dead_tup > 10000 AND n_dead_tup > n_live_tup ORDER BY n_dead_tup DESC;

-- name: long_transactions
SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::bigint FROM pg_stat_activity
    WHERE datname = current_database() AND xact_start < clock_timestamp() - interval '15 minutes'
    ORDER BY xact_start LIMIT 5;

-- name: indexes
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND i.indisvalid;

-- name: foreign_triggers
SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND NOT t.tgisinternal ORDER BY t.tgname;

-- name: probe
INSERT INTO {schema}.definitions (version, body) VALUES ('probe', decode(repeat('00', 8192), 'hex'));

-- name: find_task_without_run
SELECT t.run, t.run_id FROM {schema}.tasks t
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.number = t.run) LIMIT 1000;

-- name: find_wrong_inbox_head
SELECT t.run, t.run_id, t.inbox_head, i.head FROM {schema}.tasks t CROSS JOIN LATERAL (
    SELECT coalesce(max(number), 0) AS head FROM {schema}.inbox WHERE run = t.run) i
    WHERE t.inbox_head <> i.head LIMIT 1000;

-- name: find_wrong_task_id
SELECT r.number, r.run_id, r.orchestrator_task_id, t.task_id FROM {schema}.tasks t
    JOIN {schema}.runs r ON r.number = t.run WHERE r.orchestrator_task_id IS DISTINCT FROM t.task_id LIMIT 1000;

-- fragment: documents
SELECT r.number, r.run_id, r.status, r.ended, {schema}.as_json(r.doc) ->> 'status' AS told,
    {schema}.as_json(r.doc) IS NULL AS unreadable FROM {schema}.runs r

-- name: find_wrong_status
SELECT number, run_id, status, told FROM ({documents} WHERE NOT r.ended) d
    WHERE told IS NOT NULL AND (told <> status OR told IN ('completed', 'failed', 'cancelled')) LIMIT 1000;

-- name: find_wrong_status_of_an_ended_run
SELECT number, run_id, status, told FROM ({documents} WHERE r.ended) d
    WHERE told IS NOT NULL AND (told <> status OR told NOT IN ('completed', 'failed', 'cancelled')) LIMIT 1000;

-- name: find_unreadable_document
SELECT number, run_id FROM ({documents} WHERE NOT r.ended) d WHERE unreadable LIMIT 1000;

-- name: find_unreadable_document_of_an_ended_run
SELECT number, run_id FROM ({documents} WHERE r.ended) d WHERE unreadable LIMIT 1000;

-- name: find_events_of_no_run
SELECT DISTINCT l.run, NULL FROM {schema}.log l
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.number = l.run) LIMIT 1000;

-- name: find_messages_of_no_run
SELECT DISTINCT i.run, NULL FROM {schema}.inbox i
    WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.number = i.run) LIMIT 1000;

-- name: repair_task_without_run
DELETE FROM {schema}.tasks t WHERE t.run = %(run)s
    AND NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.number = t.run);

-- name: repair_wrong_inbox_head
UPDATE {schema}.tasks t SET inbox_head = coalesce((SELECT max(number) FROM {schema}.inbox WHERE run = t.run), 0)
    WHERE t.run = %(run)s;

-- name: repair_wrong_task_id
UPDATE {schema}.runs r SET orchestrator_task_id = t.task_id FROM {schema}.tasks t
    WHERE t.run = r.number AND r.number = %(run)s;

-- name: repair_wrong_status
UPDATE {schema}.runs r SET status = d.told, ended = d.told IN ('completed', 'failed', 'cancelled')
    FROM ({documents} WHERE r.number = %(run)s) d WHERE r.number = d.number AND d.told IS NOT NULL;

-- name: set_document
UPDATE {schema}.runs SET doc = %s WHERE number = %s;
