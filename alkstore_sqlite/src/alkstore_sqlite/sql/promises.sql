-- name: sequences
-- The ids given out last, each in its table; ids given out in one transaction follow one another.
SELECT name, seq FROM sqlite_sequence WHERE name IN ('alkstore_jobs', 'alkstore_events');
