-- Mailboxes. The view and the trigger that go with them are in outstanding.sql, and stand in every file.

-- One row per message. The sequence is the order of sending, over all mailboxes.
-- created_at, here and below, is in whole unix seconds; what came from an older design is kept as it was there.
CREATE TABLE alkstore_messages (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    mailbox TEXT NOT NULL,
    type TEXT,
    payload BLOB NOT NULL,
    read INTEGER NOT NULL DEFAULT 0 CHECK (read IN (0, 1)),
    created_at ANY NOT NULL
) STRICT;

-- What still needs attention, in order of sending; the rowid, which ends every index, is the sequence.
CREATE INDEX alkstore_messages_unread ON alkstore_messages (mailbox) WHERE read = 0;

-- Whether anything of a type needs attention (M4).
CREATE INDEX alkstore_messages_types ON alkstore_messages (mailbox, type) WHERE read = 0 AND type IS NOT NULL;

-- One row per delivery. There is no status: what is outstanding is a view, outstanding_deliveries.
-- message_ids: a JSON array, in order of sending.
-- reach: the greatest sequence among its messages. It says nothing that message_ids does not; it is there to be indexed.
CREATE TABLE alkstore_deliveries (
    id TEXT PRIMARY KEY,
    mailbox TEXT NOT NULL,
    source TEXT NOT NULL,
    subject TEXT NOT NULL,
    generation INTEGER NOT NULL,
    message_ids TEXT NOT NULL,
    reach INTEGER NOT NULL,
    created_at ANY NOT NULL,
    acknowledged_at ANY,
    fenced INTEGER NOT NULL DEFAULT 0 CHECK (fenced IN (0, 1))
) STRICT;

-- What may be outstanding. A batch that was suppressed stays in here for ever, since nothing of it is written (M6); but
-- it reaches less far than the oldest unread message, and is never walked over.
CREATE INDEX alkstore_deliveries_open ON alkstore_deliveries (mailbox, reach)
    WHERE acknowledged_at IS NULL AND fenced = 0;

-- Who has been a mailbox's consumer, and in which generation (M8, M10).
CREATE TABLE alkstore_consumers (
    mailbox TEXT NOT NULL,
    source TEXT NOT NULL,
    subject TEXT NOT NULL,
    generation INTEGER NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1)),
    PRIMARY KEY (mailbox, source, subject)
) STRICT, WITHOUT ROWID;
