-- If this holding of the leader's lock lasts: fire the earliest due schedule (H4).
-- Shared on the lock's row, so that nobody else can lead before this transaction has ended.
CREATE OR REPLACE FUNCTION {schema}.fire_next(
    lock_name text, by_owner text, with_token bigint, cap bigint,
    default_attempts bigint, visibility bigint, backoff bigint, retention bigint, given bigint
) RETURNS TABLE (leads boolean, schedule text, to_queue text, fired bigint, next_fire bigint)
LANGUAGE plpgsql
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    due {schema}.schedules;
    elapsed numeric;
BEGIN
    PERFORM FROM {schema}.locks l
    WHERE l.name = lock_name AND l.owner = by_owner AND l.token = with_token AND l.expires_at > at_second
    FOR SHARE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT false, NULL::text, NULL::text, 0::bigint, NULL::bigint;
        RETURN;
    END IF;
    SELECT * INTO due FROM {schema}.schedules s
    WHERE s.next_fire <= at_second AND s.next_fire < 9223372036854775807
    ORDER BY s.next_fire, coalesce(s.long_name, s.name) LIMIT 1
    FOR UPDATE;
    IF FOUND THEN
        elapsed := div(at_second::numeric - due.next_fire, due.interval_s) + 1;
        fired := least(elapsed, cap)::bigint;
        INSERT INTO {schema}.jobs (
            queue, long_queue, payload, state, place, priority, ready_at, expires_at, attempts, max_attempts,
            visibility_timeout_s, backoff_base_s, dead_letter_retention_s, created_at
        )
        SELECT
            due.queue, due.long_queue, due.payload, 0, 1, due.priority,
            (due.next_fire + number::numeric * due.interval_s)::bigint,
            {schema}.saturating_add(at_second, due.expires), 0, coalesce(due.max_attempts, default_attempts),
            visibility, backoff, retention, at_second
        FROM generate_series(0, fired - 1) number;
        UPDATE {schema}.schedules s
        SET next_fire = least(due.next_fire + elapsed * due.interval_s, 9223372036854775807)::bigint
        WHERE s.name = due.name;
    ELSE
        fired := 0;
    END IF;
    RETURN QUERY SELECT
        true, coalesce(due.long_name, due.name), coalesce(due.long_queue, due.queue), fired,
        (SELECT min(s.next_fire) FROM {schema}.schedules s);
END
$$;
