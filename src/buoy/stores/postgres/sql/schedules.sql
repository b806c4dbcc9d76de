-- Schedules: one row each, written only over the number that the writer saw.

-- name: schedules
SELECT name, body FROM {schema}.schedules ORDER BY name;

-- name: lock_schedule
SELECT name, body FROM {schema}.schedules WHERE name = %s FOR UPDATE;

-- name: discard_schedule
DELETE FROM {schema}.schedules WHERE name = %s;

-- name: add_schedule
INSERT INTO {schema}.schedules (name, number, body) VALUES (%(name)s, %(number)s, %(body)s) ON CONFLICT DO NOTHING;

-- name: change_schedule
UPDATE {schema}.schedules SET number = %(number)s, body = %(body)s
    WHERE name = %(name)s AND number = %(number)s - 1;
