-- Version 3: mailboxes. The view of what is outstanding and its guard are functions/7_mailboxes.sql.

-- One row per message. The sequence is the order of sending, over all mailboxes.
CREATE TABLE {schema}.messages (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at bigint NOT NULL,
    read boolean NOT NULL DEFAULT false,
    id text COLLATE "C" NOT NULL UNIQUE,
    mailbox text COLLATE "C" NOT NULL,
    type text COLLATE "C",
    payload bytea NOT NULL
);

-- What still needs attention, in order of sending.
CREATE INDEX messages_unread ON {schema}.messages (mailbox, sequence) WHERE NOT read;

-- Whether anything of a type needs attention (M4). An index entry has no room for types of any length.
CREATE INDEX messages_types ON {schema}.messages (mailbox, left(type, 200)) WHERE NOT read AND type IS NOT NULL;

-- One row per delivery. There is no status: what is outstanding is a view, outstanding_deliveries.
-- reach: the greatest sequence among its messages. It says nothing that message_ids does not; it is there to be indexed.
CREATE TABLE {schema}.deliveries (
    id text COLLATE "C" PRIMARY KEY,
    generation bigint NOT NULL,
    reach bigint NOT NULL,
    created_at bigint NOT NULL,
    acknowledged_at bigint,
    fenced boolean NOT NULL DEFAULT false,
    mailbox text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    message_ids text[] COLLATE "C" NOT NULL
);

-- What may be outstanding. A batch that was suppressed stays in here for ever, since nothing of it is written (M6); but
-- it reaches less far than the oldest unread message, and is never walked over.
CREATE INDEX deliveries_open ON {schema}.deliveries (mailbox, reach) WHERE acknowledged_at IS NULL AND NOT fenced;

-- Who has been a mailbox's consumer, and in which generation (M8, M10).
CREATE TABLE {schema}.consumers (
    mailbox text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    settled boolean NOT NULL DEFAULT false,
    PRIMARY KEY (mailbox, source, subject)
) WITH (fillfactor = 50);

-- What is read leaves the indexes of what is unread: their dead entries must go long before a fifth of a large table is
-- dead.
ALTER TABLE {schema}.messages SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05
);
