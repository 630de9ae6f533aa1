-- name: append_events
-- Append events, in the order given; their offsets, growing, and the transaction (S1, S8). Enlisted, it announces the
-- stream's wake itself.
SELECT offsets AS ids, xid, CASE WHEN $6::text IS NOT NULL THEN pg_notify($6, '') END AS announced
FROM {schema}.append_events($1, $2, $3, $4, $5);

-- name: read_events
-- Committed events above an offset (S3).
SELECT "offset", key, payload, created_at FROM {schema}.read_events($1, $2, $3);

-- name: read_settled_events
-- Events above an offset that nothing can be committed below any more, and whether others are held back (S8).
SELECT "offset", key, payload, created_at FROM {schema}.read_settled_events($1, $2, $3, $4);

-- name: read_consumer_events
-- Committed events after a consumer's offset (S4).
SELECT "offset", key, payload, created_at FROM {schema}.read_consumer_events($1, $2, $3);

-- name: save_offset
-- Save a consumer's offset, if it is the first or higher (S4).
INSERT INTO {schema}.offsets AS saved (stream, consumer, "offset") VALUES ($1, $2, $3)
ON CONFLICT (stream, consumer) DO UPDATE SET "offset" = excluded."offset" WHERE saved."offset" < excluded."offset";

-- name: get_offset
-- A consumer's saved offset (S4).
SELECT "offset" FROM {schema}.offsets WHERE stream = $1 AND consumer = $2;

-- name: trim_events
-- Delete the events up to an offset; how many (S6).
WITH trimmed AS (DELETE FROM {schema}.events WHERE stream = $1 AND "offset" <= $2 RETURNING 1)
SELECT count(*) FROM trimmed;
