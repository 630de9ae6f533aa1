-- The plans are pinned (INDEXED BY): statistics that an ANALYZE gathered at a bad moment must not change them.

-- name: insert_job
-- Add one pending job and give its id (Q1).
INSERT INTO alkstore_jobs (
    queue, payload, state, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s,
    backoff_base_s, dead_letter_retention_s, created_at, place, claims
) VALUES (?, ?, 0, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 0)
RETURNING id;

-- name: insert_job_as
-- Add one pending job under the id that it was promised.
INSERT INTO alkstore_jobs (
    id, queue, payload, state, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s,
    backoff_base_s, dead_letter_retention_s, created_at, place, claims
) VALUES (?, ?, ?, 0, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 0);

-- name: insert_jobs
-- Add one of many pending jobs; the last id of them all is asked for afterwards (Q12).
INSERT INTO alkstore_jobs (
    queue, payload, state, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s,
    backoff_base_s, dead_letter_retention_s, created_at, place, claims
) VALUES (?, ?, 0, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 0);

-- name: last_job_id
-- The id given out last; ids given out in one transaction follow one another.
SELECT seq FROM sqlite_sequence WHERE name = 'alkstore_jobs';

-- name: set_expired_aside
-- Take what has expired out of the claim order once, so that no later claim walks over it.
UPDATE alkstore_jobs INDEXED BY alkstore_jobs_expiry SET place = 2
WHERE queue = ? AND place IN (0, 1, 3) AND expires_at <= ? AND expires_at IS NOT NULL AND state < 2;

-- name: return_unexpired
-- Put back what was set aside before the clock was set back: it has not expired yet.
UPDATE alkstore_jobs INDEXED BY alkstore_jobs_expiry SET place = iif(state = 1, 0, iif(ready_at > ? AND priority <> 0, 3, 1))
WHERE queue = ? AND place = 2 AND expires_at > ? AND expires_at IS NOT NULL AND state < 2;

-- name: return_lapsed
-- Put lapsed claims back into the claim order, and bury those that were the last attempt (Q4).
UPDATE alkstore_jobs INDEXED BY alkstore_jobs_held SET
    state = iif(attempts >= max_attempts, 2, 1),
    place = iif(attempts >= max_attempts, 2, 1),
    last_error = iif(attempts >= max_attempts, 'max attempts exceeded', last_error),
    died_at = iif(attempts >= max_attempts, ?, died_at),
    purge_at = iif(attempts >= max_attempts AND dead_letter_retention_s IS NOT NULL,
                   iif(dead_letter_retention_s > 9223372036854775807 - max(?, 0), 9223372036854775807,
                       ? + dead_letter_retention_s),
                   purge_at)
WHERE queue = ? AND place = 0 AND claim_expires_at <= ?;

-- name: ripen
-- Put what has become ready into the claim order.
UPDATE alkstore_jobs INDEXED BY alkstore_jobs_delayed SET place = 1 WHERE queue = ? AND place = 3 AND ready_at <= ?;

-- name: claimable_first
-- The first rows in claim order of what goes before the usual priority (Q3).
-- All of these are ready, but where the clock was set back.
SELECT id, payload, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s, backoff_base_s,
    dead_letter_retention_s, created_at, last_error, claims
FROM alkstore_jobs INDEXED BY alkstore_jobs_order
WHERE queue = ? AND place = 1 AND priority > 0 AND ready_at <= ? AND (state = 0 OR claim_expires_at <= ?)
ORDER BY priority DESC, ready_at, id LIMIT ?;

-- name: claimable
-- The first rows in claim order of the usual priority; the delayed come last, and are not walked (Q3).
SELECT id, payload, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s, backoff_base_s,
    dead_letter_retention_s, created_at, last_error, claims
FROM alkstore_jobs INDEXED BY alkstore_jobs_order
WHERE queue = ? AND place = 1 AND priority = 0 AND ready_at <= ? AND (state = 0 OR claim_expires_at <= ?)
ORDER BY priority DESC, ready_at, id LIMIT ?;

-- name: claimable_last
-- The first rows in claim order of what comes after the usual priority (Q3).
SELECT id, payload, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s, backoff_base_s,
    dead_letter_retention_s, created_at, last_error, claims
FROM alkstore_jobs INDEXED BY alkstore_jobs_order
WHERE queue = ? AND place = 1 AND priority < 0 AND ready_at <= ? AND (state = 0 OR claim_expires_at <= ?)
ORDER BY priority DESC, ready_at, id LIMIT ?;

-- name: claim
-- Hand rows to a worker (Q4). One statement for all: a third of the cost of one each is saved.
UPDATE alkstore_jobs SET
    state = 1, place = 0, worker_id = ?, claimed_at = ?,
    claim_expires_at = iif(visibility_timeout_s > 9223372036854775807 - max(?, 0), 9223372036854775807,
                           ? + visibility_timeout_s),
    attempts = attempts + 1, claims = claims + 1
WHERE id IN (SELECT value FROM json_each(?));

-- name: live_claims
-- Which of these rows are held by a live claim, and by which (Q5).
SELECT id, claims FROM alkstore_jobs
WHERE id IN (SELECT value FROM json_each(?)) AND state = 1 AND claim_expires_at > ?;

-- name: delete_jobs
-- Delete rows whose claims were found live in the same transaction (Q6).
DELETE FROM alkstore_jobs WHERE id IN (SELECT value FROM json_each(?));

-- name: ack_jobs
-- Delete the rows among these that this worker holds a live claim on (Q8).
DELETE FROM alkstore_jobs
WHERE id IN (SELECT value FROM json_each(?)) AND queue = ? AND worker_id = ? AND state = 1 AND claim_expires_at > ?;

-- name: retry_claim
-- Make the row of one live claim wait again (Q7).
UPDATE alkstore_jobs SET
    state = 0, place = ?, ready_at = ?, last_error = ?, worker_id = NULL, claimed_at = NULL, claim_expires_at = NULL
WHERE id = ? AND claims = ? AND state = 1 AND claim_expires_at > ?;

-- name: bury_claim
-- Make the row of one live claim a dead letter (Q6, Q9).
UPDATE alkstore_jobs SET state = 2, place = 2, last_error = ?, died_at = ?, purge_at = ?
WHERE id = ? AND claims = ? AND state = 1 AND claim_expires_at > ?;

-- name: claim_deadline
-- When one live claim lapses.
SELECT claim_expires_at FROM alkstore_jobs WHERE id = ? AND claims = ? AND state = 1 AND claim_expires_at > ?;

-- name: extend_claim
-- Move the deadline of one live claim (Q6).
UPDATE alkstore_jobs SET claim_expires_at = ?, place = iif(expires_at <= ?, 2, 0)
WHERE id = ? AND claims = ? AND state = 1 AND claim_expires_at > ?;

-- name: release_claim
-- Give the row of one live claim back, the attempt not counted (Q15).
UPDATE alkstore_jobs SET
    state = 0, place = 1, ready_at = ?, attempts = attempts - 1, worker_id = NULL, claimed_at = NULL,
    claim_expires_at = NULL
WHERE id = ? AND claims = ? AND state = 1 AND claim_expires_at > ?;

-- name: cancel_job
-- Delete a job that is not dead (Q8).
DELETE FROM alkstore_jobs WHERE id = ? AND queue = ? AND state < 2;

-- name: find_job
-- Look a job up in any queue (Q8).
SELECT id, queue, payload, state, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s,
    backoff_base_s, dead_letter_retention_s, created_at, worker_id, claimed_at, claim_expires_at, last_error, died_at
FROM alkstore_jobs WHERE id = ?;

-- name: bury_expired
-- Make every expired job a dead letter (Q10).
UPDATE alkstore_jobs INDEXED BY alkstore_jobs_expiry SET
    state = 2, place = 2, last_error = 'expired', died_at = ?,
    purge_at = iif(dead_letter_retention_s > 9223372036854775807 - max(?, 0), 9223372036854775807,
                   ? + dead_letter_retention_s)
WHERE queue = ? AND place IN (0, 1, 2, 3) AND expires_at <= ? AND expires_at IS NOT NULL AND state < 2;

-- name: purge_dead
-- Delete dead letters past their retention (Q10).
DELETE FROM alkstore_jobs INDEXED BY alkstore_jobs_purge WHERE queue = ? AND purge_at <= ? AND purge_at IS NOT NULL;

-- name: next_delayed
-- When the first of those that are not ready yet will be (Q13).
SELECT ready_at FROM alkstore_jobs INDEXED BY alkstore_jobs_delayed
WHERE queue = ? AND place = 3 AND (expires_at IS NULL OR expires_at > ?)
ORDER BY ready_at LIMIT 1;

-- name: next_priority
-- The highest priority at or below a bound that has any row in the claim order.
SELECT priority FROM alkstore_jobs INDEXED BY alkstore_jobs_order
WHERE queue = ? AND place = 1 AND priority <= ?
ORDER BY priority DESC LIMIT 1;

-- name: next_ready
-- When the first row of one priority in the claim order was ready, by time alone (Q13).
SELECT ready_at FROM alkstore_jobs INDEXED BY alkstore_jobs_order
WHERE queue = ? AND place = 1 AND priority = ? AND (expires_at IS NULL OR expires_at > ?)
ORDER BY ready_at LIMIT 1;

-- name: next_lapse
-- When the first claim lapses, if it is not ended before (Q13).
SELECT claim_expires_at FROM alkstore_jobs INDEXED BY alkstore_jobs_held
WHERE queue = ? AND place = 0 AND (expires_at IS NULL OR expires_at > ?)
ORDER BY claim_expires_at LIMIT 1;
