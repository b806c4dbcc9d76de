-- Tokens of servers: one row each, written only over the number that the writer saw.

-- name: tokens
SELECT id, body FROM {schema}.tokens ORDER BY id;

-- name: add_token
INSERT INTO {schema}.tokens (id, number, body) VALUES (%(id)s, %(number)s, %(body)s) ON CONFLICT DO NOTHING;

-- name: change_token
UPDATE {schema}.tokens SET number = %(number)s, body = %(body)s
    WHERE id = %(id)s AND number = %(number)s - 1;
