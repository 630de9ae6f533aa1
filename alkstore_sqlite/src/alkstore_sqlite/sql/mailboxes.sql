-- Nobody asks for more than a few of a mailbox's rows: those that are unread, and the delivery that may be outstanding.

-- name: insert_message
-- Append an unread message.
INSERT INTO alkstore_messages (id, mailbox, type, payload, created_at) VALUES (?, ?, ?, ?, ?);

-- name: find_consumer
-- A consumer's record (M10, M11).
SELECT generation, settled FROM alkstore_consumers WHERE mailbox = ? AND source = ? AND subject = ?;

-- name: next_generation
-- A new generation of a consumer, the first if it has no record (M8).
INSERT INTO alkstore_consumers (mailbox, source, subject, generation) VALUES (?, ?, ?, 1)
ON CONFLICT (mailbox, source, subject) DO UPDATE SET generation = generation + 1
RETURNING generation;

-- name: settle_consumer
-- Settle a consumer, or reopen it (M11).
UPDATE alkstore_consumers SET settled = ?1 WHERE mailbox = ?2 AND source = ?3 AND subject = ?4 AND settled <> ?1;

-- name: outstanding
-- The outstanding delivery of a mailbox. One that reaches less far than the oldest unread message is not looked at.
SELECT id, source, subject, generation, message_ids, created_at FROM outstanding_deliveries
WHERE mailbox = ?1 AND reach >= (
    SELECT sequence FROM alkstore_messages INDEXED BY alkstore_messages_unread
    WHERE mailbox = ?1 AND read = 0 ORDER BY sequence LIMIT 1);

-- name: unread_of_types
-- Whether an unread message has one of these types (M4).
SELECT 1 FROM json_each(?2) AS wanted CROSS JOIN alkstore_messages AS m INDEXED BY alkstore_messages_types
    ON m.mailbox = ?1 AND m.type = wanted.value AND m.read = 0 AND m.type IS NOT NULL
LIMIT 1;

-- name: oldest_unread
-- The oldest unread messages, in order of sending (M3).
SELECT sequence, id, type, payload, created_at FROM alkstore_messages INDEXED BY alkstore_messages_unread
WHERE mailbox = ? AND read = 0 ORDER BY sequence LIMIT ?;

-- name: insert_delivery
-- Hand out a batch (M3). The guard is a trigger (M13).
INSERT INTO alkstore_deliveries (id, mailbox, source, subject, generation, message_ids, reach, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: members
-- The messages of a delivery, in its order, read or not (M2).
SELECT m.id, m.type, m.payload, m.created_at
FROM json_each(?) AS member CROSS JOIN alkstore_messages AS m ON m.id = member.value ORDER BY member.key;

-- name: find_delivery
-- A delivery of any mailbox (M7).
SELECT mailbox, source, subject, generation, message_ids, acknowledged_at, fenced FROM alkstore_deliveries
WHERE id = ?;

-- name: find_message
-- Whether an id is a message's (M7).
SELECT 1 FROM alkstore_messages WHERE id = ?;

-- name: mark_read
-- Mark messages of a mailbox read, by their ids (M5, M6). The + keeps the index of all that is unread out of it.
UPDATE alkstore_messages SET read = 1
WHERE id IN (SELECT value FROM json_each(?)) AND +mailbox = ? AND +read = 0;

-- name: acknowledge
-- Write down when a delivery was acknowledged (M5).
UPDATE alkstore_deliveries SET acknowledged_at = ? WHERE id = ?;

-- name: fence
-- Fence every delivery of a mailbox that is neither acknowledged nor fenced (M8, M9).
UPDATE alkstore_deliveries INDEXED BY alkstore_deliveries_open SET fenced = 1
WHERE mailbox = ? AND acknowledged_at IS NULL AND fenced = 0;

-- name: fence_one
-- Fence the delivery whose messages are moved elsewhere.
UPDATE alkstore_deliveries SET fenced = 1 WHERE id = ?;

-- name: pending
-- Unread messages in no outstanding delivery, in order of sending (M14).
SELECT id, type, payload, created_at FROM alkstore_messages INDEXED BY alkstore_messages_unread
WHERE mailbox = ?1 AND read = 0
    AND id NOT IN (SELECT member.value FROM outstanding_deliveries AS o, json_each(o.message_ids) AS member
        WHERE o.mailbox = ?1 AND o.reach >= (
            SELECT sequence FROM alkstore_messages INDEXED BY alkstore_messages_unread
            WHERE mailbox = ?1 AND read = 0 ORDER BY sequence LIMIT 1))
ORDER BY sequence;

-- name: any_unread
-- Whether anything in a mailbox is unread.
SELECT 1 FROM alkstore_messages INDEXED BY alkstore_messages_unread WHERE mailbox = ? AND read = 0 LIMIT 1;

-- name: reroute
-- Move what is unread to another mailbox, in its place by order of sending.
UPDATE alkstore_messages INDEXED BY alkstore_messages_unread SET mailbox = ? WHERE mailbox = ? AND read = 0;
