-- name: stamp_topic
-- Leave a new stamp on a topic, for the watchers of other processes (N7).
INSERT INTO alkstore_wakes (topic, stamp) VALUES (?, ?)
ON CONFLICT (topic) DO UPDATE SET stamp = excluded.stamp;

-- name: read_stamp
-- The latest stamp of a topic.
SELECT stamp FROM alkstore_wakes WHERE topic = ?;

-- name: count_topics
-- How many topics have a stamp.
SELECT count(*) FROM alkstore_wakes;

-- name: forget_topics
-- Drop the oldest stamps when there are too many. A watcher takes a dropped one for a wake, which may come twice (N3).
DELETE FROM alkstore_wakes WHERE topic IN (SELECT topic FROM alkstore_wakes ORDER BY stamp LIMIT ?);
