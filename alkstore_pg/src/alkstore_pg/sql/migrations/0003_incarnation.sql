-- Version 3: what tells one run of the server's memory from the next. A server that crashed gives the numbers of
-- transactions that it lost to others, so that what it says of such a number may be said of another transaction.

-- At most one row. Unlogged: a crash empties it, and an orderly stop does not.
CREATE UNLOGGED TABLE {schema}.incarnation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL
);
