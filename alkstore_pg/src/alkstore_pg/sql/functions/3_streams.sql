-- Streams whose followers never skip an event (S8).
--
-- Offsets are drawn in one order and committed in another, so "everything above the last offset I saw" loses what commits
-- late. A publishing transaction therefore says where it stands before it draws: it reads the sequence's last value as its
-- floor, takes a shared advisory lock whose key is made of the stream's hash and that floor, and only then draws
-- offsets, which are above the floor. A follower reads the sequence's last value, then the lowest floor among those locks,
-- then, with a fresh snapshot, the events up to the lower of the two. An event that it does not see there is either above
-- that bound, or was committed never. Nobody waits for a lock; a transaction that publishes nothing is not waited for.
--
-- A key is 24 bits of the hash above 40 bits of the floor; equal hashes make a follower wait for one stream more.

-- Append events, in order; their offsets, growing, and the transaction (S1).
CREATE OR REPLACE FUNCTION {schema}.append_events(
    to_streams text[], hashes integer[], keys text[], payloads bytea[], given bigint
) RETURNS TABLE (offsets bigint[], xid bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    stated text := coalesce(current_setting('alkstore.floors', true), '');
    stating text := stated;
    hash integer;
    floor_offset bigint;
BEGIN
    FOREACH hash IN ARRAY hashes LOOP
        -- One floor per stream and transaction: the first is the lowest. The setting is undone with a savepoint, as the
        -- lock is.
        CONTINUE WHEN position(';' || hash || ';' IN stating) > 0;
        SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END INTO floor_offset
        FROM {schema}.event_offsets s;
        PERFORM pg_advisory_xact_lock_shared((hash::bigint << 40) | (floor_offset & 1099511627775));
        stating := stating || ';' || hash || ';';
    END LOOP;
    IF stating <> stated THEN
        PERFORM set_config('alkstore.floors', stating, true);
    END IF;
    RETURN QUERY
    WITH appended AS (
        INSERT INTO {schema}.events (stream, key, payload, created_at)
        SELECT new.stream, new.key, new.payload, at_second
        FROM unnest(to_streams, keys, payloads) AS new(stream, key, payload)
        RETURNING "offset"
    )
    SELECT array_agg(a."offset"), pg_current_xact_id()::text::bigint FROM appended a;
END
$$;

-- The first `wanted` events above an offset, ascending (S3).
CREATE OR REPLACE FUNCTION {schema}.read_events(of_stream text, above bigint, wanted bigint)
RETURNS SETOF {schema}.events
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off
AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM {schema}.events e
    WHERE e.stream = of_stream AND e."offset" > above ORDER BY e."offset" LIMIT wanted;
END
$$;

-- The same after a consumer's saved offset, both seen at one moment (S4).
CREATE OR REPLACE FUNCTION {schema}.read_consumer_events(of_stream text, for_consumer text, wanted bigint)
RETURNS SETOF {schema}.events
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off
AS $$
BEGIN
    RETURN QUERY SELECT e.* FROM {schema}.events e
    WHERE e.stream = of_stream AND e."offset" > coalesce(
        (SELECT o."offset" FROM {schema}.offsets o WHERE o.stream = of_stream AND o.consumer = for_consumer), 0)
    ORDER BY e."offset" LIMIT wanted;
END
$$;

-- The same, but nothing above an offset that may still be committed by an open transaction (S8). A last row without an
-- offset says that committed events are held back by an older publisher.
CREATE OR REPLACE FUNCTION {schema}.read_settled_events(of_stream text, hash integer, above bigint, wanted bigint)
RETURNS SETOF {schema}.events
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off
AS $$
DECLARE
    head bigint;
    bound bigint;
    held {schema}.events;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.events e WHERE e.stream = of_stream AND e."offset" > above) THEN
        RETURN;
    END IF;
    SELECT CASE WHEN s.is_called THEN s.last_value ELSE s.last_value - 1 END INTO head FROM {schema}.event_offsets s;
    -- A floor is told from its lowest 40 bits by its distance to the head; those above the head do not matter.
    SELECT head - max(((head - l.key + 549755813888) & 1099511627775) - 549755813888) INTO bound
    FROM (
        SELECT (classid::bigint << 32) | objid::bigint AS key FROM pg_locks
        WHERE locktype = 'advisory' AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) l
    WHERE l.key >> 40 = hash;
    bound := least(head, bound);
    RETURN QUERY SELECT e.* FROM {schema}.events e
    WHERE e.stream = of_stream AND e."offset" > above AND e."offset" <= bound ORDER BY e."offset" LIMIT wanted;
    IF bound < head AND EXISTS (
        SELECT FROM {schema}.events e WHERE e.stream = of_stream AND e."offset" > greatest(above, bound)
    ) THEN
        RETURN NEXT held;
    END IF;
END
$$;
