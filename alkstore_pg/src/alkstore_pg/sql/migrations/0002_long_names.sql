-- Version 2: names of more than 1,000 bytes are known by their hash, since an index entry has no room for longer ones.
-- The name itself stands in a column beside it where it has to be told again; null for all others.

ALTER TABLE {schema}.jobs ADD COLUMN long_queue text COLLATE "C";
ALTER TABLE {schema}.schedules ADD COLUMN long_name text COLLATE "C", ADD COLUMN long_queue text COLLATE "C";

CREATE FUNCTION {schema}.hashed_name(name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT '__alkstore_long:' || encode(sha256(convert_to(name, 'UTF8')), 'hex')
$$;

CREATE FUNCTION {schema}.is_long_name(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT octet_length(convert_to(name, 'UTF8')) > 1000 OR starts_with(name, '__alkstore_long:')
$$;

UPDATE {schema}.jobs SET long_queue = queue, queue = {schema}.hashed_name(queue) WHERE {schema}.is_long_name(queue);
UPDATE {schema}.schedules SET long_name = name, name = {schema}.hashed_name(name) WHERE {schema}.is_long_name(name);
UPDATE {schema}.schedules SET long_queue = queue, queue = {schema}.hashed_name(queue)
WHERE {schema}.is_long_name(queue);
UPDATE {schema}.events SET stream = {schema}.hashed_name(stream) WHERE {schema}.is_long_name(stream);
UPDATE {schema}.offsets SET stream = {schema}.hashed_name(stream) WHERE {schema}.is_long_name(stream);
UPDATE {schema}.offsets SET consumer = {schema}.hashed_name(consumer) WHERE {schema}.is_long_name(consumer);
UPDATE {schema}.locks SET name = {schema}.hashed_name(name) WHERE {schema}.is_long_name(name);

DROP FUNCTION {schema}.is_long_name(text);
DROP FUNCTION {schema}.hashed_name(text);
