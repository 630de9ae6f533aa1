-- What a claim and a settlement do. Functions, because a claim is several statements that each need a fresh snapshot, in
-- one round trip; and because a function's own settings pin its plans: whatever the statistics say or do not say yet,
-- these statements walk the index that was made for them, also in a session that planned them on an empty table. Where
-- two indexes could serve, the wrong one must not match: rows found by id are told to be claimed by their claim alone,
-- since "state = 1" would let an index of all claims in.

-- Take up to `wanted` jobs in claim order (Q3, Q4).
-- What it costs does not depend on how many jobs wait: four probes of an index, then for each priority that has ready
-- rows one seek to the first of them. Delayed rows of priority 0 are never walked, since ready_at follows the priority,
-- and those of others stand apart.
CREATE OR REPLACE FUNCTION {schema}.claim_jobs(
    of_queue text, for_worker text, wanted bigint, by_claim bigint, given bigint
) RETURNS SETOF {schema}.jobs
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    lapsed boolean;
    expired boolean;
    unexpired boolean;
    ripe boolean;
    top bigint := 9223372036854775807;
    first_ready bigint;
    first_id bigint;
    picked bigint[] := '{}';
BEGIN
    SELECT
        EXISTS (SELECT FROM {schema}.jobs j
            WHERE j.queue = of_queue AND j.place = 0 AND j.state = 1 AND j.claim_expires_at <= at_second),
        EXISTS (SELECT FROM {schema}.jobs j
            WHERE j.queue = of_queue AND j.place IN (1, 3) AND j.state < 2 AND j.expires_at <= at_second),
        EXISTS (SELECT FROM {schema}.jobs j
            WHERE j.queue = of_queue AND j.place = 2 AND j.state < 2 AND j.expires_at > at_second),
        EXISTS (SELECT FROM {schema}.jobs j
            WHERE j.queue = of_queue AND j.place = 3 AND j.ready_at <= at_second)
        INTO lapsed, expired, unexpired, ripe;
    IF unexpired THEN  -- the clock was set back
        UPDATE {schema}.jobs j SET place = CASE
            WHEN j.state = 1 THEN 0 WHEN j.priority <> 0 AND j.ready_at > at_second THEN 3 ELSE 1 END
        FROM (
            SELECT e.id FROM {schema}.jobs e
            WHERE e.queue = of_queue AND e.place = 2 AND e.state < 2 AND e.expires_at > at_second
            FOR UPDATE SKIP LOCKED
        ) back
        WHERE j.id = back.id;
        lapsed := true;
    END IF;
    IF lapsed THEN
        -- An exhausted row dies, an expired one waits for a sweep, any other joins the claim order.
        UPDATE {schema}.jobs j SET
            place = CASE WHEN over.expired OR over.exhausted THEN 2 ELSE 1 END,
            state = CASE WHEN over.exhausted THEN 2 ELSE 1 END,
            claim = CASE WHEN over.exhausted THEN NULL ELSE j.claim END,
            last_error = CASE WHEN over.exhausted THEN 'max attempts exceeded' ELSE j.last_error END,
            died_at = CASE WHEN over.exhausted THEN at_second END,
            purge_at = CASE WHEN over.exhausted
                THEN {schema}.saturating_add(at_second, j.dead_letter_retention_s) END
        FROM (
            SELECT l.id,
                coalesce(l.expires_at <= at_second, false) AS expired,
                l.attempts >= l.max_attempts AND coalesce(l.expires_at > at_second, true) AS exhausted
            FROM {schema}.jobs l
            WHERE l.queue = of_queue AND l.place = 0 AND l.state = 1 AND l.claim_expires_at <= at_second
            FOR UPDATE SKIP LOCKED
        ) over
        WHERE j.id = over.id;
    END IF;
    IF expired THEN
        UPDATE {schema}.jobs j SET place = 2
        FROM (
            SELECT e.id FROM {schema}.jobs e
            WHERE e.queue = of_queue AND e.place IN (1, 3) AND e.state < 2 AND e.expires_at <= at_second
            FOR UPDATE SKIP LOCKED
        ) over
        WHERE j.id = over.id;
    END IF;
    IF ripe THEN
        UPDATE {schema}.jobs j SET place = 1
        FROM (
            SELECT r.id FROM {schema}.jobs r
            WHERE r.queue = of_queue AND r.place = 3 AND r.ready_at <= at_second
            FOR UPDATE SKIP LOCKED
        ) ready
        WHERE j.id = ready.id;
    END IF;
    LOOP
        SELECT j.priority, j.ready_at, j.id INTO top, first_ready, first_id FROM {schema}.jobs j
        WHERE j.queue = of_queue AND j.place = 1 AND j.priority <= top
        ORDER BY j.priority DESC, j.ready_at, j.id LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF first_ready <= at_second THEN
            -- From that first row on: entries of rows that are gone and not vacuumed yet are stepped over once only.
            picked := picked || ARRAY(
                SELECT j.id FROM {schema}.jobs j
                WHERE j.queue = of_queue AND j.place = 1 AND j.priority = top
                    AND (j.ready_at, j.id) >= (first_ready, first_id) AND j.ready_at <= at_second
                    AND (j.expires_at IS NULL OR j.expires_at > at_second)
                    AND (j.state = 0 OR j.claim_expires_at <= at_second)
                ORDER BY j.ready_at, j.id
                LIMIT wanted - cardinality(picked)
                FOR UPDATE SKIP LOCKED
            );
        END IF;
        EXIT WHEN cardinality(picked) >= wanted OR top = (-9223372036854775807 - 1);
        top := top - 1;
    END LOOP;
    IF cardinality(picked) > 0 THEN
        RETURN QUERY UPDATE {schema}.jobs j SET
            state = 1,
            place = 0,
            worker_id = for_worker,
            claimed_at = at_second,
            claim_expires_at = {schema}.saturating_add(at_second, j.visibility_timeout_s),
            attempts = j.attempts + 1,
            claim = by_claim
        WHERE j.id = ANY (picked)
        RETURNING j.*;
    END IF;
END
$$;

-- Delete the rows whose claim is live and is this one; the ids of those (Q5, Q6).
CREATE OR REPLACE FUNCTION {schema}.ack_claims(ids bigint[], claims bigint[], given bigint) RETURNS SETOF bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
BEGIN
    RETURN QUERY DELETE FROM {schema}.jobs j USING unnest(ids, claims) AS held(id, claim)
    WHERE j.id = held.id AND j.claim = held.claim AND j.claim_expires_at > at_second
    RETURNING j.id;
END
$$;

-- Delete the rows of a queue that a worker holds a live claim on; how many (Q8).
CREATE OR REPLACE FUNCTION {schema}.ack_jobs(of_queue text, by_worker text, ids bigint[], given bigint) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    acked bigint;
BEGIN
    DELETE FROM {schema}.jobs j
    WHERE j.id = ANY (ids) AND j.queue = of_queue AND j.worker_id = by_worker
        AND j.claim IS NOT NULL AND j.claim_expires_at > at_second;
    GET DIAGNOSTICS acked = ROW_COUNT;
    RETURN acked;
END
$$;

-- Live claims: pending again after a delay; the ids of those (Q7).
CREATE OR REPLACE FUNCTION {schema}.retry_claims(
    ids bigint[], claims bigint[], errors text[], delays bigint[], given bigint
) RETURNS SETOF bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
BEGIN
    RETURN QUERY UPDATE {schema}.jobs j SET
        state = 0, place = CASE WHEN j.priority <> 0 AND held.delay > 0 THEN 3 ELSE 1 END,
        ready_at = {schema}.saturating_add(at_second, held.delay), last_error = held.error,
        worker_id = NULL, claimed_at = NULL, claim_expires_at = NULL, claim = NULL
    FROM unnest(ids, claims, errors, delays) AS held(id, claim, error, delay)
    WHERE j.id = held.id AND j.claim = held.claim AND j.claim_expires_at > at_second
    RETURNING j.id;
END
$$;

-- Live claims: dead letters now; the ids of those (Q6, Q9).
CREATE OR REPLACE FUNCTION {schema}.bury_claims(
    ids bigint[], claims bigint[], errors text[], given bigint
) RETURNS SETOF bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
BEGIN
    RETURN QUERY UPDATE {schema}.jobs j SET
        state = 2, place = 2, claim = NULL, last_error = held.error, died_at = at_second,
        purge_at = {schema}.saturating_add(at_second, j.dead_letter_retention_s)
    FROM unnest(ids, claims, errors) AS held(id, claim, error)
    WHERE j.id = held.id AND j.claim = held.claim AND j.claim_expires_at > at_second
    RETURNING j.id;
END
$$;

-- Live claims: a new deadline; the ids of those, and whether it is sooner than before (Q6).
CREATE OR REPLACE FUNCTION {schema}.extend_claims(
    ids bigint[], claims bigint[], extends bigint[], given bigint
) RETURNS TABLE (job_id bigint, sooner boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
BEGIN
    RETURN QUERY
    WITH live AS (
        SELECT j.id, j.claim_expires_at AS before, {schema}.saturating_add(at_second, held.extend) AS after
        FROM unnest(ids, claims, extends) AS held(id, claim, extend)
        JOIN {schema}.jobs j ON j.id = held.id AND j.claim = held.claim
        WHERE j.claim_expires_at > at_second
        FOR UPDATE OF j
    )
    UPDATE {schema}.jobs j SET claim_expires_at = live.after, place = 0
    FROM live WHERE j.id = live.id
    RETURNING j.id, live.after < live.before;
END
$$;

-- Live claims: pending and ready at once, the attempt not counted; the ids of those (Q15).
CREATE OR REPLACE FUNCTION {schema}.release_claims(ids bigint[], claims bigint[], given bigint) RETURNS SETOF bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
BEGIN
    RETURN QUERY UPDATE {schema}.jobs j SET
        state = 0, place = 1, ready_at = at_second, attempts = j.attempts - 1,
        worker_id = NULL, claimed_at = NULL, claim_expires_at = NULL, claim = NULL
    FROM unnest(ids, claims) AS held(id, claim)
    WHERE j.id = held.id AND j.claim = held.claim AND j.claim_expires_at > at_second
    RETURNING j.id;
END
$$;

-- What one call claimed and nobody heard of, released; how many rows (Q15). Finds them by the claim alone.
CREATE OR REPLACE FUNCTION {schema}.release_lost_claim(of_queue text, lost_claim bigint, given bigint) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    released bigint;
BEGIN
    UPDATE {schema}.jobs j SET
        state = 0, place = 1, ready_at = at_second, attempts = j.attempts - 1,
        worker_id = NULL, claimed_at = NULL, claim_expires_at = NULL, claim = NULL
    WHERE j.queue = of_queue AND j.place = 0 AND j.state = 1 AND j.claim = lost_claim;
    GET DIAGNOSTICS released = ROW_COUNT;
    RETURN released;
END
$$;

-- Delete a live row of a queue; whether there was one (Q8).
CREATE OR REPLACE FUNCTION {schema}.cancel_job(of_queue text, job_id bigint) RETURNS boolean
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    DELETE FROM {schema}.jobs j WHERE j.id = job_id AND j.queue = of_queue AND j.state < 2;
    RETURN FOUND;
END
$$;

-- One row, live or dead, in one queue or in any (Q8).
CREATE OR REPLACE FUNCTION {schema}.find_job(job_id bigint, of_queue text) RETURNS SETOF {schema}.jobs
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
BEGIN
    RETURN QUERY SELECT j.* FROM {schema}.jobs j WHERE j.id = job_id AND (of_queue IS NULL OR j.queue = of_queue);
END
$$;

-- Move what has expired to dead, delete the dead past their retention; how many were moved (Q10).
CREATE OR REPLACE FUNCTION {schema}.sweep_jobs(of_queue text, given bigint) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    moved bigint;
BEGIN
    UPDATE {schema}.jobs j SET
        state = 2, place = 2, claim = NULL, last_error = 'expired', died_at = at_second,
        purge_at = {schema}.saturating_add(at_second, j.dead_letter_retention_s)
    WHERE j.queue = of_queue AND j.place IN (0, 1, 2, 3) AND j.state < 2 AND j.expires_at <= at_second;
    GET DIAGNOSTICS moved = ROW_COUNT;
    DELETE FROM {schema}.jobs j WHERE j.queue = of_queue AND j.purge_at <= at_second;
    RETURN moved;
END
$$;

-- The second at which a queue next has something to claim, or null (Q13). Seeks as a claim does.
CREATE OR REPLACE FUNCTION {schema}.next_due(of_queue text, given bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    due bigint;
    ready bigint;
    top bigint := 9223372036854775807;
BEGIN
    SELECT least(
        (SELECT j.claim_expires_at FROM {schema}.jobs j
            WHERE j.queue = of_queue AND j.place = 0 AND j.state = 1
                AND (j.expires_at IS NULL OR j.expires_at > at_second)
            ORDER BY j.claim_expires_at LIMIT 1),
        (SELECT j.claim_expires_at FROM {schema}.jobs j
            WHERE j.queue = of_queue AND j.place = 1 AND j.state = 1
                AND (j.expires_at IS NULL OR j.expires_at > at_second)
            ORDER BY j.claim_expires_at LIMIT 1),
        (SELECT j.ready_at FROM {schema}.jobs j
            WHERE j.queue = of_queue AND j.place = 3 AND (j.expires_at IS NULL OR j.expires_at > at_second)
            ORDER BY j.ready_at LIMIT 1)
    ) INTO due;
    LOOP
        SELECT j.priority INTO top FROM {schema}.jobs j
        WHERE j.queue = of_queue AND j.place = 1 AND j.priority <= top
        ORDER BY j.priority DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT j.ready_at INTO ready FROM {schema}.jobs j
        WHERE j.queue = of_queue AND j.place = 1 AND j.priority = top AND j.state = 0
            AND (j.expires_at IS NULL OR j.expires_at > at_second)
        ORDER BY j.ready_at LIMIT 1;
        due := least(due, ready);
        EXIT WHEN top = (-9223372036854775807 - 1);
        top := top - 1;
    END LOOP;
    RETURN due;
END
$$;
