-- additive: yes
-- Tokens of servers, by digest: see `ports/tokens`.

CREATE TABLE {schema}.tokens (id text PRIMARY KEY, number bigint NOT NULL, body bytea NOT NULL);
