-- name: insert_messages
-- Append unread messages, in the order given; their ids, and the transaction.
WITH inserted AS (
    INSERT INTO {schema}.messages (mailbox, id, type, payload, created_at)
    SELECT new.mailbox, new.id, new.type, new.payload, {schema}.second_of($5::bigint)
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) AS new(mailbox, id, type, payload)
    RETURNING id
)
SELECT array_agg(id) AS ids, pg_current_xact_id()::text::bigint AS xid FROM inserted;

-- name: attach_consumer
-- A consumer's new generation, or the one it has, and whether mail is pending again (M8, M9).
SELECT generation, freed FROM {schema}.attach_consumer($1, $2, $3, $4);

-- name: check_mailbox
-- The messages of the batch in a holder's hands, or of a new one; or why there is none (M1 to M4).
SELECT refusal, delivery, first_given, replayed, id, type, payload, created_at
FROM {schema}.check_mailbox($1, $2, $3, $4, $5, $6, $7, $8);

-- name: acknowledge_delivery
-- When a delivery was acknowledged, and whether before; or why it was not (M5, M7).
SELECT refusal, acknowledged_at, duplicate FROM {schema}.acknowledge_delivery($1, $2, $3, $4, $5, $6);

-- name: suppress_messages
-- Mark messages read; how many were not, and whether mail can be handed out that could not (M6).
SELECT marked, freed FROM {schema}.suppress_messages($1, $2);

-- name: settle_consumer
-- Settle a consumer, or reopen it; whether that changed anything (M11).
SELECT {schema}.settle_consumer($1, $2, $3, $4);

-- name: pending_messages
-- Unread messages in no outstanding delivery (M14).
SELECT id, type, payload, created_at FROM {schema}.pending_messages($1);

-- name: reroute_messages
-- Move unread messages to another mailbox; how many.
SELECT {schema}.reroute_messages($1, $2);
