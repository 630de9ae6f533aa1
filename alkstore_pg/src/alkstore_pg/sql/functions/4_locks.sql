-- Hold a lock if nobody does; the holding, and whether it is new (L1, L2, L5). No row where somebody else holds it.
-- The token is drawn once the row is this transaction's, when every earlier holding of the name has ended.
CREATE OR REPLACE FUNCTION {schema}.take_lock(lock_name text, by_owner text, ttl bigint, given bigint)
RETURNS TABLE (token bigint, expires_at bigint, fresh boolean)
LANGUAGE plpgsql
AS $$
DECLARE
    at_second bigint := {schema}.second_of(given);
    held {schema}.locks;
BEGIN
    SELECT * INTO held FROM {schema}.locks l WHERE l.name = lock_name;
    IF NOT FOUND OR held.expires_at <= at_second THEN
        INSERT INTO {schema}.locks AS l (name, owner, token, expires_at)
        VALUES (lock_name, by_owner, 0, (-9223372036854775807 - 1)) ON CONFLICT (name) DO NOTHING;
        RETURN QUERY UPDATE {schema}.locks l SET
            owner = by_owner,
            token = nextval('{schema}.lock_tokens'),
            asked = 1,
            expires_at = {schema}.saturating_add(at_second, ttl)
        WHERE l.name = lock_name AND l.expires_at <= at_second
        RETURNING l.token, l.expires_at, true;
        IF FOUND THEN
            RETURN;
        END IF;
        SELECT * INTO held FROM {schema}.locks l WHERE l.name = lock_name;
    END IF;
    IF held.owner = by_owner THEN
        RETURN QUERY UPDATE {schema}.locks l SET asked = l.asked + 1
        WHERE l.name = lock_name AND l.owner = by_owner AND l.expires_at > at_second
        RETURNING l.token, l.expires_at, false;
    END IF;
END
$$;
