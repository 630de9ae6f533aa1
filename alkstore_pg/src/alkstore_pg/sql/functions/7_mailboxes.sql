-- Mailboxes. Whatever decides about a mailbox takes its lock first, and looks at everything else after it, with snapshots
-- of its own: so two that check get one delivery (M1), and a consumer that was replaced is seen to be (M8). Sending and
-- suppressing take no lock of a mailbox, so that a business transaction never keeps a consumer waiting; rows are locked
-- in order of sending, so that two that read the same messages do not wait for each other.

-- Which deliveries are outstanding (M6, M13). Everything that asks, asks this. Said as IS NOT TRUE, what is read is looked
-- up by the message's id, and not in the index of all that is unread.
CREATE OR REPLACE VIEW {schema}.outstanding_deliveries AS
SELECT d.id, d.generation, d.reach, d.created_at, d.acknowledged_at, d.fenced, d.mailbox, d.source, d.subject,
    d.message_ids
FROM {schema}.deliveries d
WHERE d.acknowledged_at IS NULL AND NOT d.fenced
    AND EXISTS (SELECT FROM {schema}.messages m WHERE m.id = ANY (d.message_ids) AND m.read IS NOT TRUE);

-- The lock of a mailbox, until the transaction ends. Of two numbers: those of one number are the floors of streams.
CREATE OR REPLACE FUNCTION {schema}.lock_mailbox(of_mailbox text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pg_advisory_xact_lock(hashtext('{schema}.mailboxes'), hashtext(of_mailbox))
$$;

-- The outstanding delivery of a mailbox. One that reaches less far than the oldest unread message is not looked at.
CREATE OR REPLACE FUNCTION {schema}.outstanding_delivery(of_mailbox text)
RETURNS SETOF {schema}.outstanding_deliveries
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off SET jit = off
AS $$
BEGIN
    RETURN QUERY SELECT o.* FROM {schema}.outstanding_deliveries o
    WHERE o.mailbox = of_mailbox AND o.reach >= (
        SELECT m.sequence FROM {schema}.messages m
        WHERE m.mailbox = of_mailbox AND NOT m.read ORDER BY m.sequence LIMIT 1);
END
$$;

-- At most one for each mailbox (M13); what is acknowledged, fenced or all read is history, and may come as it likes.
CREATE OR REPLACE FUNCTION {schema}.guard_delivery() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM {schema}.lock_mailbox(NEW.mailbox);
    IF (SELECT count(*) > 1 AND bool_or(o.id = NEW.id) FROM {schema}.outstanding_delivery(NEW.mailbox) o) THEN
        RAISE EXCEPTION 'mailbox % has an outstanding delivery already', NEW.mailbox USING ERRCODE = 'unique_violation';
    END IF;
    RETURN NULL;
END
$$;

DROP TRIGGER IF EXISTS deliveries_guard ON {schema}.deliveries;
CREATE TRIGGER deliveries_guard AFTER INSERT ON {schema}.deliveries
FOR EACH ROW EXECUTE FUNCTION {schema}.guard_delivery();

-- Why a consumer may neither check nor acknowledge, by its own record (M10, M11); null if it may.
CREATE OR REPLACE FUNCTION {schema}.refused_holder(
    of_mailbox text, by_source text, by_subject text, of_generation bigint
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    known {schema}.consumers;
BEGIN
    SELECT c.* INTO known FROM {schema}.consumers c
    WHERE c.mailbox = of_mailbox AND c.source = by_source AND c.subject = by_subject;
    RETURN CASE
        WHEN NOT FOUND THEN 'UNKNOWN_CONSUMER'
        WHEN known.generation <> of_generation THEN 'OTHER_GENERATION'
        WHEN known.settled THEN 'SETTLED'
    END;
END
$$;

-- Fence what is neither acknowledged nor fenced; whether any of it was outstanding, so that its mail is pending again.
CREATE OR REPLACE FUNCTION {schema}.fence_mailbox(of_mailbox text) RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    held boolean := EXISTS (SELECT FROM {schema}.outstanding_delivery(of_mailbox));
BEGIN
    UPDATE {schema}.deliveries d SET fenced = true
    WHERE d.mailbox = of_mailbox AND d.acknowledged_at IS NULL AND NOT d.fenced;
    RETURN held;
END
$$;

-- A consumer's new generation (M8), or with `adopting` the one that it has (M9), and whether mail is pending again. No
-- row where one that never attached adopts.
CREATE OR REPLACE FUNCTION {schema}.attach_consumer(of_mailbox text, by_source text, by_subject text, adopting boolean)
RETURNS TABLE (generation bigint, freed boolean)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM {schema}.lock_mailbox(of_mailbox);
    IF adopting THEN
        SELECT c.generation INTO generation FROM {schema}.consumers c
        WHERE c.mailbox = of_mailbox AND c.source = by_source AND c.subject = by_subject;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    ELSE
        INSERT INTO {schema}.consumers AS c (mailbox, source, subject, generation)
        VALUES (of_mailbox, by_source, by_subject, 1)
        ON CONFLICT ON CONSTRAINT consumers_pkey DO UPDATE SET generation = c.generation + 1
        RETURNING c.generation INTO generation;
    END IF;
    freed := {schema}.fence_mailbox(of_mailbox);
    RETURN NEXT;
END
$$;

-- The batch in a holder's hands, or a new one of the oldest unread messages (M1 to M4): its messages, in order. One row
-- with a refusal where there is a reason for it, and no row where there is no mail.
CREATE OR REPLACE FUNCTION {schema}.check_mailbox(
    of_mailbox text, by_source text, by_subject text, of_generation bigint, wanted bigint, wanted_types text[],
    fresh_id text, given bigint
) RETURNS TABLE (
    refusal text, delivery text, first_given bigint, replayed boolean,
    id text, type text, payload bytea, created_at bigint
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    held {schema}.outstanding_deliveries;
    again boolean;
    latest bigint;
BEGIN
    PERFORM {schema}.lock_mailbox(of_mailbox);
    refusal := {schema}.refused_holder(of_mailbox, by_source, by_subject, of_generation);
    IF refusal IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT o.* INTO held FROM {schema}.outstanding_delivery(of_mailbox) o;
    again := FOUND;
    IF again THEN
        IF (held.source, held.subject, held.generation) <> (by_source, by_subject, of_generation) THEN
            refusal := 'OTHER_HOLDER';
            RETURN NEXT;
            RETURN;
        END IF;
    ELSE
        IF wanted_types IS NOT NULL AND NOT EXISTS (
            SELECT FROM unnest(wanted_types) AS one(type), LATERAL (
                SELECT FROM {schema}.messages m
                WHERE m.mailbox = of_mailbox AND left(m.type, 200) = left(one.type, 200) AND m.type = one.type
                    AND NOT m.read AND m.type IS NOT NULL LIMIT 1
            ) unread
        ) THEN
            RETURN;
        END IF;
        SELECT array_agg(b.id ORDER BY b.sequence), max(b.sequence) INTO held.message_ids, latest
        FROM (
            SELECT m.id, m.sequence FROM {schema}.messages m
            WHERE m.mailbox = of_mailbox AND NOT m.read ORDER BY m.sequence LIMIT wanted
        ) b;
        IF latest IS NULL THEN
            RETURN;
        END IF;
        held.id := fresh_id;
        held.created_at := {schema}.second_of(given);
        INSERT INTO {schema}.deliveries (id, mailbox, source, subject, generation, message_ids, reach, created_at)
        VALUES (fresh_id, of_mailbox, by_source, by_subject, of_generation, held.message_ids, latest, held.created_at);
    END IF;
    RETURN QUERY SELECT NULL::text, held.id, held.created_at, again, m.id, m.type, m.payload, m.created_at
    FROM unnest(held.message_ids) WITH ORDINALITY AS member(id, place)
    JOIN {schema}.messages m ON m.id = member.id ORDER BY member.place;
END
$$;

-- Mark messages of a mailbox read, those that are not; how many.
CREATE OR REPLACE FUNCTION {schema}.read_messages(of_mailbox text, ids text[]) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    marked bigint;
BEGIN
    UPDATE {schema}.messages m SET read = true
    FROM (
        SELECT u.sequence FROM {schema}.messages u
        WHERE u.id = ANY (ids) AND u.mailbox = of_mailbox AND u.read IS NOT TRUE ORDER BY u.sequence FOR UPDATE
    ) unread
    WHERE m.sequence = unread.sequence;
    GET DIAGNOSTICS marked = ROW_COUNT;
    RETURN marked;
END
$$;

-- Read a delivery's messages and write down the time, once (M5, M6, M7).
CREATE OR REPLACE FUNCTION {schema}.acknowledge_delivery(
    of_mailbox text, by_source text, by_subject text, of_generation bigint, delivery_id text, given bigint
) RETURNS TABLE (refusal text, acknowledged_at bigint, duplicate boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    known {schema}.deliveries;
BEGIN
    PERFORM {schema}.lock_mailbox(of_mailbox);
    refusal := {schema}.refused_holder(of_mailbox, by_source, by_subject, of_generation);
    IF refusal IS NULL THEN
        SELECT d.* INTO known FROM {schema}.deliveries d WHERE d.id = delivery_id;
        refusal := CASE
            WHEN known.id IS NULL THEN CASE
                WHEN EXISTS (SELECT FROM {schema}.messages m WHERE m.id = delivery_id) THEN 'MESSAGE_ID'
                ELSE 'UNKNOWN_DELIVERY'
            END
            WHEN known.mailbox <> of_mailbox THEN 'OTHER_MAILBOX'
            WHEN (known.source, known.subject, known.generation) <> (by_source, by_subject, of_generation)
                THEN 'OTHER_HOLDER'
            WHEN known.fenced THEN 'FENCED'
        END;
    END IF;
    IF refusal IS NULL THEN
        acknowledged_at := known.acknowledged_at;
        duplicate := acknowledged_at IS NOT NULL;
        IF NOT duplicate THEN
            acknowledged_at := {schema}.second_of(given);
            PERFORM {schema}.read_messages(of_mailbox, known.message_ids);
            UPDATE {schema}.deliveries d SET acknowledged_at = acknowledge_delivery.acknowledged_at
            WHERE d.id = delivery_id;
        END IF;
    END IF;
    RETURN NEXT;
END
$$;

-- Suppress messages (M6); how many were unread, and whether that ended the outstanding delivery and left others to be
-- handed out.
CREATE OR REPLACE FUNCTION {schema}.suppress_messages(of_mailbox text, ids text[])
RETURNS TABLE (marked bigint, freed boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    held boolean := EXISTS (SELECT FROM {schema}.outstanding_delivery(of_mailbox));
BEGIN
    marked := {schema}.read_messages(of_mailbox, ids);
    freed := held AND NOT EXISTS (SELECT FROM {schema}.outstanding_delivery(of_mailbox))
        AND EXISTS (SELECT FROM {schema}.messages m WHERE m.mailbox = of_mailbox AND NOT m.read);
    RETURN NEXT;
END
$$;

-- Settle a consumer, or reopen it (M11); whether that changed anything.
CREATE OR REPLACE FUNCTION {schema}.settle_consumer(of_mailbox text, by_source text, by_subject text, settle boolean)
RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM {schema}.lock_mailbox(of_mailbox);
    UPDATE {schema}.consumers c SET settled = settle
    WHERE c.mailbox = of_mailbox AND c.source = by_source AND c.subject = by_subject AND c.settled <> settle;
    RETURN FOUND;
END
$$;

-- Unread messages in no outstanding delivery, in order of sending (M14).
CREATE OR REPLACE FUNCTION {schema}.pending_messages(of_mailbox text) RETURNS SETOF {schema}.messages
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    taken text[] := ARRAY(
        SELECT unnest(o.message_ids) FROM {schema}.outstanding_deliveries o
        WHERE o.mailbox = of_mailbox AND o.reach >= (
            SELECT m.sequence FROM {schema}.messages m
            WHERE m.mailbox = of_mailbox AND NOT m.read ORDER BY m.sequence LIMIT 1));
BEGIN
    RETURN QUERY SELECT m.* FROM {schema}.messages m
    WHERE m.mailbox = of_mailbox AND NOT m.read AND m.id <> ALL (taken) ORDER BY m.sequence;
END
$$;

-- Move what is unread to another mailbox, in its place by order of sending, and fence the delivery that held some of it;
-- how many messages.
CREATE OR REPLACE FUNCTION {schema}.reroute_messages(of_mailbox text, to_mailbox text) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    moved bigint;
BEGIN
    PERFORM {schema}.lock_mailbox(of_mailbox);
    UPDATE {schema}.deliveries d SET fenced = true
    FROM {schema}.outstanding_delivery(of_mailbox) o WHERE d.id = o.id;
    UPDATE {schema}.messages m SET mailbox = to_mailbox
    FROM (
        SELECT u.sequence FROM {schema}.messages u
        WHERE u.mailbox = of_mailbox AND NOT u.read ORDER BY u.sequence FOR UPDATE
    ) unread
    WHERE m.sequence = unread.sequence;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END
$$;
