-- Appends.

-- name: append_run
SELECT {schema}.append_run(%b::text, %b::bigint, %b::bigint, %b::text, %b::boolean, %b::bytea, %b::text, %b::bytea);

-- name: commit_group
SELECT place, head FROM {schema}.commit_group(%b::text[], %b::bigint[], %b::bigint[], %b::text[], %b::boolean[],
    %b::bytea[], %b::text[], %b::bytea[], %b::integer[], %b::integer[], %b::text, %b::text, %b::integer[], %b::text);

-- What stands where each write would begin, and how far the run has come.
-- name: landed
SELECT w.place, r.head_seq, l.nonce
    FROM unnest(%b::text[], %b::bigint[]) WITH ORDINALITY AS w (run_id, seq, place)
    JOIN {schema}.runs r ON r.run_id = w.run_id AND r.head_seq >= w.seq
    LEFT JOIN {schema}.log l ON l.run = r.number AND l.first_seq = w.seq;
