-- Taking over a database in which deliveries had a status (user_version 40). A mailbox was a run and a recipient there,
-- and has a name here.

-- name: mailboxes
-- What every mailbox will be called, and how many old ones would be called so (M16).
SELECT mailbox, count(*) FROM (
    SELECT run_id, recipient AS handle, iif(run_id IS NULL, '', run_id || ':') || recipient AS mailbox
    FROM main.messages
    UNION
    SELECT run_id, mailbox_handle, iif(run_id IS NULL, '', run_id || ':') || mailbox_handle FROM main.deliveries
) GROUP BY mailbox;

-- name: strange_delivery
-- A delivery whose status is none of the three, or whose messages are no list.
SELECT id, status, message_ids FROM main.deliveries
WHERE coalesce(status, '') NOT IN ('outstanding', 'acknowledged', 'fenced')
    OR NOT json_valid(message_ids) OR json_type(message_ids) <> 'array'
LIMIT 1;

-- name: count_messages
-- How many messages there are to take over.
SELECT count(*) FROM main.messages;

-- name: old_messages
-- The messages in their order. A payload that is JSON stays as it is; other text becomes a JSON string.
SELECT m.id, iif(m.run_id IS NULL, '', m.run_id || ':') || m.recipient, nullif(m.type, ''),
    CAST(CASE
        WHEN m.payload IS NULL THEN 'null'
        WHEN typeof(m.payload) = 'blob' OR json_valid(m.payload) THEN m.payload
        ELSE json_quote(m.payload)
    END AS BLOB),
    iif(m.read, 1, 0), coalesce(m.created_at, 0)
FROM main.messages AS m ORDER BY m.sequence, m.created_at, m.id;

-- name: take_message
-- Take one message over.
INSERT INTO main.alkstore_messages (id, mailbox, type, payload, read, created_at) VALUES (?, ?, ?, ?, ?, ?);

-- name: count_deliveries
-- How many deliveries there are to take over.
SELECT count(*) FROM main.deliveries;

-- name: old_deliveries
-- The deliveries: the status becomes what it stood for, and all else stays as it is (M16).
SELECT d.id, iif(d.run_id IS NULL, '', d.run_id || ':') || d.mailbox_handle, coalesce(d.run_id, d.mailbox_handle),
    coalesce(d.consumer_generation, 0), d.message_ids,
    coalesce((SELECT max(m.sequence) FROM json_each(d.message_ids) AS member
        CROSS JOIN main.alkstore_messages AS m ON m.id = member.value), 0),
    coalesce(d.created_at, 0), iif(d.status = 'acknowledged', coalesce(d.acknowledged_at, d.created_at), d.acknowledged_at),
    iif(d.status = 'fenced', 1, 0)
FROM main.deliveries AS d;

-- name: take_delivery
-- Take one delivery over. The guard looks at it like at any other (M13).
INSERT INTO main.alkstore_deliveries
    (id, mailbox, source, subject, generation, message_ids, reach, created_at, acknowledged_at, fenced)
VALUES (?, ?, 'run', ?, ?, ?, ?, ?, ?, ?);

-- name: take_consumers
-- The consumer of each mailbox, in the generation that its deliveries have come to (M12).
INSERT INTO main.alkstore_consumers (mailbox, source, subject, generation)
SELECT iif(d.run_id IS NULL, '', d.run_id || ':') || d.mailbox_handle, 'run', coalesce(d.run_id, d.mailbox_handle),
    max(coalesce(d.consumer_generation, 0))
FROM main.deliveries AS d WHERE true GROUP BY 1, 3
ON CONFLICT (mailbox, source, subject) DO UPDATE SET generation = max(generation, excluded.generation);

-- name: drop_deliveries
-- The old facts go: each is stored in one place.
DROP TABLE main.deliveries;

-- name: drop_messages
-- Likewise.
DROP TABLE main.messages;

-- name: number_it
-- The version of the older design's scheme, in the same transaction.
PRAGMA main.user_version = 41;
