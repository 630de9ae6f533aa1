-- name: put_schedule
-- Register a schedule, or replace it; the same spec keeps its next fire, unless the clock was set back (H1, H2, H5).
INSERT INTO {schema}.schedules AS kept (
    name, long_name, spec, interval_s, queue, long_queue, payload, priority, max_attempts, expires, next_fire
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {schema}.saturating_add({schema}.second_of($11), $4))
ON CONFLICT (name) DO UPDATE SET
    spec = excluded.spec,
    interval_s = excluded.interval_s,
    queue = excluded.queue,
    long_queue = excluded.long_queue,
    payload = excluded.payload,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    expires = excluded.expires,
    next_fire = CASE WHEN kept.spec = excluded.spec THEN least(kept.next_fire, excluded.next_fire)
        ELSE excluded.next_fire END;

-- name: delete_schedule
-- Drop a schedule; its name, if there was one.
DELETE FROM {schema}.schedules WHERE name = $1 RETURNING name;

-- name: next_fire
-- When the earliest schedule is due.
SELECT min(next_fire) FROM {schema}.schedules;

-- name: fire_next
-- Fire the earliest due schedule, if this leader still leads (H4).
SELECT leads, schedule, to_queue, fired, next_fire FROM {schema}.fire_next($1, $2, $3, $4, $5, $6, $7, $8, $9);
