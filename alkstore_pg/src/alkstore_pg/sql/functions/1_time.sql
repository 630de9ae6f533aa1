-- The second that a statement runs at: the one given, or the server's. statement_timestamp(), since now() is the start
-- of a perhaps long transaction, and clock_timestamp() changes within a statement and so forbids an index scan.
CREATE OR REPLACE FUNCTION {schema}.second_of(given bigint) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(given, floor(extract(epoch FROM statement_timestamp()))::bigint)
$$;

-- The sum, held within int64 (V5); null if either is null.
CREATE OR REPLACE FUNCTION {schema}.saturating_add(a bigint, b bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN b >= 0 AND a > 9223372036854775807 - b THEN 9223372036854775807
        WHEN b < 0 AND a < (-9223372036854775807 - 1) - b THEN (-9223372036854775807 - 1)
        ELSE a + b
    END
$$;
