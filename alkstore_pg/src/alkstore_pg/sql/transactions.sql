-- name: own_xid
-- The transaction that this session is in, if it has written anything (T14).
SELECT pg_current_xact_id_if_assigned()::text::bigint;

-- name: incarnation
-- What tells this run of the server from one before a crash (T14).
SELECT {schema}.current_incarnation();

-- name: outcome
-- What became of a transaction of an incarnation (T14); one that its lost connection left open is ended. After a crash, a
-- number that nobody has had since was lost with it, and one that has been given again is another's, which is left alone.
SELECT
    CASE
        WHEN now.crashed AND $1::text::xid8 >= pg_snapshot_xmax(pg_current_snapshot()) THEN 'aborted'
        ELSE pg_xact_status($1::text::xid8)
    END AS status,
    now.crashed,
    (SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE NOT now.crashed AND backend_xid IS NOT NULL AND backend_xid = ($1::text::xid8)::xid) AS ended
FROM (SELECT NOT EXISTS (SELECT FROM {schema}.incarnation i WHERE i.id = $2) AS crashed) AS now;
