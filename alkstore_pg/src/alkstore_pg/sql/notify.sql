-- name: notify
-- Wake a channel's listeners at the commit (N1).
SELECT pg_notify($1, $2);

-- name: wake
-- Wake many topics at once, after what woke them was committed. Nothing of it needs to survive a crash, so it does not
-- wait for the disk.
SELECT set_config('synchronous_commit', 'off', true), count(pg_notify(channel, $2)) FROM unnest($1::text[]) AS channel;

-- name: sign_of_life
-- The server's clock, over the listening connection, and who serves it.
SELECT extract(epoch FROM clock_timestamp())::float8 AS now, pg_backend_pid() AS served_by;

-- name: beat
-- The same with a wake that must come back over it, and answers to the stores whose wakes were heard.
SELECT
    extract(epoch FROM clock_timestamp())::float8 AS now, pg_backend_pid() AS served_by,
    set_config('synchronous_commit', 'off', true), pg_notify($1, ''),
    (SELECT count(pg_notify(channel, $3)) FROM unnest($2::text[]) AS channel);

-- name: clock
-- The server's clock, and the isolation level that a plain statement runs at.
SELECT extract(epoch FROM clock_timestamp())::float8, current_setting('default_transaction_isolation');
