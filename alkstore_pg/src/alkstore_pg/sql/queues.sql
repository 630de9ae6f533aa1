-- name: insert_job
-- Add one pending job; its id, and the transaction (Q1, Q2). Enlisted, it announces the queue's wake itself.
INSERT INTO {schema}.jobs (
    queue, long_queue, payload, state, place, priority, ready_at, expires_at, attempts, max_attempts,
    visibility_timeout_s, backoff_base_s, dead_letter_retention_s, created_at
)
VALUES (
    $2, $3, $1, 0,
    CASE  -- delayed, and not of the usual priority
        WHEN $4::bigint <> 0 AND coalesce($5::bigint > 0, $6::bigint > {schema}.second_of($12), false) THEN 3
        ELSE 1
    END,
    $4,
    CASE
        WHEN $5::bigint IS NOT NULL THEN {schema}.saturating_add({schema}.second_of($12), $5)
        ELSE coalesce($6, {schema}.second_of($12))
    END,
    {schema}.saturating_add({schema}.second_of($12), $7),
    0, $8, $9, $10, $11, {schema}.second_of($12)
)
RETURNING
    id, pg_current_xact_id()::text::bigint AS xid,
    CASE WHEN $13::text IS NOT NULL THEN pg_notify($13, '') END AS announced;

-- name: insert_alike_jobs
-- Add pending jobs that differ in their payloads only, in the order given; their ids, growing (Q12).
WITH inserted AS (
    INSERT INTO {schema}.jobs (
        queue, long_queue, payload, state, place, priority, ready_at, expires_at, attempts, max_attempts,
        visibility_timeout_s, backoff_base_s, dead_letter_retention_s, created_at
    )
    SELECT
        $2, $3, new.payload, 0,
        CASE
            WHEN $4::bigint <> 0 AND coalesce($5::bigint > 0, $6::bigint > {schema}.second_of($12), false) THEN 3
            ELSE 1
        END,
        $4,
        CASE
            WHEN $5::bigint IS NOT NULL THEN {schema}.saturating_add({schema}.second_of($12), $5)
            ELSE coalesce($6, {schema}.second_of($12))
        END,
        {schema}.saturating_add({schema}.second_of($12), $7),
        0, $8, $9, $10, $11, {schema}.second_of($12)
    FROM unnest($1::bytea[]) AS new(payload)
    RETURNING id
)
SELECT
    array_agg(id) AS ids, pg_current_xact_id()::text::bigint AS xid,
    CASE WHEN $13::text IS NOT NULL THEN pg_notify($13, '') END AS announced
FROM inserted;

-- name: insert_jobs
-- The same for jobs that differ in anything, of any queues.
WITH inserted AS (
    INSERT INTO {schema}.jobs (
        queue, long_queue, payload, state, place, priority, ready_at, expires_at, attempts, max_attempts,
        visibility_timeout_s, backoff_base_s, dead_letter_retention_s, created_at
    )
    SELECT
        new.queue, new.long_queue, new.payload, 0,
        CASE WHEN new.priority <> 0 AND coalesce(new.delay > 0, new.run_at > now.second, false) THEN 3 ELSE 1 END,
        new.priority,
        CASE
            WHEN new.delay IS NOT NULL THEN {schema}.saturating_add(now.second, new.delay)
            ELSE coalesce(new.run_at, now.second)
        END,
        {schema}.saturating_add(now.second, new.expires),
        0, new.max_attempts, new.visibility, new.backoff, new.retention, now.second
    FROM
        unnest(
            $1::bytea[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]
        ) AS new(
            payload, queue, long_queue, priority, delay, run_at, expires, max_attempts, visibility, backoff, retention
        ),
        (SELECT {schema}.second_of($12::bigint) AS second) AS now
    RETURNING id
)
SELECT
    array_agg(id) AS ids, pg_current_xact_id()::text::bigint AS xid,
    CASE WHEN $13::text IS NOT NULL THEN pg_notify($13, '') END AS announced
FROM inserted;

-- name: claim_jobs
-- Take jobs for a worker, in no order (Q3, Q4).
SELECT
    id, payload, priority, ready_at, expires_at, attempts, max_attempts, visibility_timeout_s, backoff_base_s,
    dead_letter_retention_s, created_at, claimed_at, claim_expires_at, last_error
FROM {schema}.claim_jobs($1, $2, $3, $4, $5);

-- name: ack_claims
-- Delete what live claims hold; the ids (Q5, Q6).
SELECT id FROM {schema}.ack_claims($1, $2, $3) AS id;

-- name: ack_jobs
-- Delete what a worker holds; how many (Q8).
SELECT {schema}.ack_jobs($1, $2, $3, $4);

-- name: retry_claims
-- Live claims become pending after a delay; the ids (Q7).
SELECT id FROM {schema}.retry_claims($1, $2, $3, $4, $5) AS id;

-- name: bury_claims
-- Live claims become dead letters; the ids (Q6).
SELECT id FROM {schema}.bury_claims($1, $2, $3, $4) AS id;

-- name: extend_claims
-- Live claims get a new deadline; the ids, and whether it is sooner (Q6).
SELECT job_id AS id, sooner FROM {schema}.extend_claims($1, $2, $3, $4);

-- name: release_claims
-- Live claims are given back; the ids (Q15).
SELECT id FROM {schema}.release_claims($1, $2, $3) AS id;

-- name: release_lost_claim
-- Give back what one call claimed and its caller never saw; how many rows.
SELECT {schema}.release_lost_claim($1, $2, $3);

-- name: cancel_job
-- Delete a live job; whether there was one (Q8).
SELECT {schema}.cancel_job($1, $2);

-- name: find_job
-- A job, live or dead (Q8).
SELECT
    id, coalesce(long_queue, queue), payload, state, priority, ready_at, expires_at, attempts, max_attempts,
    visibility_timeout_s, backoff_base_s, dead_letter_retention_s, created_at, worker_id, claimed_at, claim_expires_at, last_error, died_at
FROM {schema}.find_job($1, $2);

-- name: sweep_jobs
-- Make what has expired dead, and delete the dead past their retention; how many were made dead (Q10).
SELECT {schema}.sweep_jobs($1, $2);

-- name: next_due
-- When a queue next has something to claim (Q13).
SELECT {schema}.next_due($1, $2);
