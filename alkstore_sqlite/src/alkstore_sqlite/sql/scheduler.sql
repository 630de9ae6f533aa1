-- name: put_schedule
-- Register or replace a schedule; the next fire stays where the spec does (H2), unless the clock was set back (H5).
INSERT INTO alkstore_schedules (name, spec, interval_s, queue, payload, priority, max_attempts, expires, next_fire)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET
    spec = excluded.spec, interval_s = excluded.interval_s, queue = excluded.queue, payload = excluded.payload,
    priority = excluded.priority, max_attempts = excluded.max_attempts, expires = excluded.expires,
    next_fire = iif(spec = excluded.spec, min(next_fire, excluded.next_fire), excluded.next_fire);

-- name: delete_schedule
-- Drop a schedule.
DELETE FROM alkstore_schedules WHERE name = ?;

-- name: next_fire
-- When the earliest schedule is due.
SELECT next_fire FROM alkstore_schedules ORDER BY next_fire, name LIMIT 1;

-- name: due_schedule
-- The earliest schedule that is due (H4). One at the int64 limit never is (H5).
SELECT name, interval_s, queue, payload, priority, max_attempts, expires, next_fire FROM alkstore_schedules
WHERE next_fire <= ? AND next_fire < 9223372036854775807 ORDER BY next_fire, name LIMIT 1;

-- name: advance_schedule
-- Store when a schedule fires next, together with what it fired (H4).
UPDATE alkstore_schedules SET next_fire = ? WHERE name = ?;
