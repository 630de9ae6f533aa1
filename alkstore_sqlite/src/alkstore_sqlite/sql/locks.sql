-- name: find_lock
-- Who holds a lock, or held it last.
SELECT owner, token, expires_at FROM alkstore_locks WHERE name = ?;

-- name: next_token
-- A fencing token above every earlier one (L5).
UPDATE alkstore_meta SET value = value + 1 WHERE key = 'lock_token' RETURNING value;

-- name: hold_lock
-- Record a new holding (L1).
INSERT INTO alkstore_locks (name, owner, token, expires_at) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = excluded.token, expires_at = excluded.expires_at;

-- name: renew_lock
-- Move the deadline of a holding that still lasts (L3).
UPDATE alkstore_locks SET expires_at = ? WHERE name = ? AND owner = ? AND token = ? AND expires_at > ?;

-- name: release_lock
-- End a holding that still lasts (L3).
DELETE FROM alkstore_locks WHERE name = ? AND owner = ? AND token = ? AND expires_at > ?;
