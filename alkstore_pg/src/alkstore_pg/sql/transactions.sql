-- name: own_xid
-- The transaction that this session is in, if it has written anything (T14).
SELECT pg_current_xact_id_if_assigned()::text::bigint;

-- name: outcome
-- What became of a transaction (T14); one that its lost connection left open is ended.
SELECT
    pg_xact_status($1::text::xid8) AS status,
    (SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE backend_xid IS NOT NULL AND backend_xid = ($1::text::xid8)::xid) AS ended;
