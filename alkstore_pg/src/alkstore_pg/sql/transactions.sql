-- name: own_xid
-- The transaction that this session is in, if it has written anything (T14).
SELECT pg_current_xact_id_if_assigned()::text::bigint;

-- name: life
-- Which life of the server transactions are numbered in (T14): its statistics are forgotten when it crashes, and another
-- server, one that was promoted, has its own.
SELECT pg_stat_get_bgwriter_stat_reset_time()::text;

-- name: outcome
-- What became of a transaction (T14), and whether the server is still in that life; if so, one that its lost connection
-- left open is ended. In another life its number may be somebody else's.
SELECT
    pg_xact_status($1::text::xid8) AS status,
    now.same_life,
    (SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE now.same_life AND backend_xid IS NOT NULL AND backend_xid = ($1::text::xid8)::xid) AS ended
FROM (SELECT coalesce(pg_stat_get_bgwriter_stat_reset_time()::text = $2, false) AS same_life) now;
