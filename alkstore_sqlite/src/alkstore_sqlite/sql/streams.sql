-- The plans are pinned (INDEXED BY): after an ANALYZE, SQLite would walk all streams' events by their offset.

-- name: append_event
-- Append one event and give its offset (S1).
INSERT INTO alkstore_events (stream, key, payload, created_at) VALUES (?, ?, ?, ?) RETURNING "offset";

-- name: append_event_as
-- Append one event under the offset that it was promised.
INSERT INTO alkstore_events ("offset", stream, key, payload, created_at) VALUES (?, ?, ?, ?, ?);

-- name: append_events
-- Append one of many events; the last offset of them all is asked for afterwards (Q12).
INSERT INTO alkstore_events (stream, key, payload, created_at) VALUES (?, ?, ?, ?);

-- name: last_offset
-- The offset given out last; offsets given out in one transaction follow one another.
SELECT seq FROM sqlite_sequence WHERE name = 'alkstore_events';

-- name: read_events
-- Events above an offset, ascending (S3).
SELECT "offset", stream, key, payload, created_at FROM alkstore_events INDEXED BY alkstore_events_stream
WHERE stream = ? AND "offset" > ? ORDER BY "offset" LIMIT ?;

-- name: read_consumer_events
-- Events after a consumer's saved offset, both seen at one moment (S4).
SELECT "offset", stream, key, payload, created_at FROM alkstore_events INDEXED BY alkstore_events_stream
WHERE stream = ? AND "offset" > coalesce(
    (SELECT "offset" FROM alkstore_offsets WHERE stream = ? AND consumer = ?), 0)
ORDER BY "offset" LIMIT ?;

-- name: save_offset
-- Store a consumer's offset unless a higher one is stored (S4).
INSERT INTO alkstore_offsets (stream, consumer, "offset") VALUES (?, ?, ?)
ON CONFLICT (stream, consumer) DO UPDATE SET "offset" = excluded."offset" WHERE excluded."offset" > "offset";

-- name: get_offset
-- A consumer's saved offset (S4).
SELECT "offset" FROM alkstore_offsets WHERE stream = ? AND consumer = ?;

-- name: trim_events
-- Delete the events up to a horizon (S6).
DELETE FROM alkstore_events INDEXED BY alkstore_events_stream WHERE stream = ? AND "offset" <= ?;
