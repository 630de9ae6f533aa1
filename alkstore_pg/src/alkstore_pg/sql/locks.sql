-- name: take_lock
-- Hold a lock if nobody does, or find one's own holding (L1, L2, L5).
SELECT token, expires_at, fresh FROM {schema}.take_lock($1, $2, $3, $4);

-- name: renew_lock
-- Move the deadline of a holding that still lasts (L3).
UPDATE {schema}.locks SET expires_at = {schema}.saturating_add({schema}.second_of($5), $4)
WHERE name = $1 AND owner = $2 AND token = $3 AND expires_at > {schema}.second_of($5)
RETURNING expires_at;

-- name: give_back_lock
-- End a holding whose caller never heard of it, unless its owner has asked again meanwhile.
DELETE FROM {schema}.locks WHERE name = $1 AND owner = $2 AND token = $3 AND asked = 1;

-- name: release_lock
-- End a holding that still lasts (L3).
DELETE FROM {schema}.locks
WHERE name = $1 AND owner = $2 AND token = $3 AND expires_at > {schema}.second_of($4)
RETURNING name;
