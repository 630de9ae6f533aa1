-- What stands in every file beside its tables, and is put back, as it is here, whenever a store is opened and finds it
-- missing or different.

-- Which deliveries are outstanding (M6, M13). Everything that asks, asks this.
CREATE VIEW outstanding_deliveries AS
SELECT d.* FROM alkstore_deliveries AS d
WHERE d.acknowledged_at IS NULL AND d.fenced = 0
    AND EXISTS (
        SELECT 1 FROM json_each(d.message_ids) AS member CROSS JOIN alkstore_messages AS m ON m.id = member.value
        WHERE m.read = 0
    );

-- At most one for each mailbox (M13); what is acknowledged, fenced or all read is history, and may come as it likes.
CREATE TRIGGER alkstore_deliveries_guard AFTER INSERT ON alkstore_deliveries
WHEN EXISTS (SELECT 1 FROM outstanding_deliveries AS o WHERE o.id = NEW.id)
    AND EXISTS (
        SELECT 1 FROM outstanding_deliveries AS o
        WHERE o.mailbox = NEW.mailbox AND o.id <> NEW.id
            AND o.reach >= (SELECT m.sequence FROM alkstore_messages AS m
                WHERE m.mailbox = NEW.mailbox AND m.read = 0 ORDER BY m.sequence LIMIT 1)
    )
BEGIN
    SELECT RAISE(ABORT, 'the mailbox has an outstanding delivery already');
END;
