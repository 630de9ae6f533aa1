-- What alkstore's own tables are at schema version 1. Every table is STRICT, and named so that an application's own
-- tables can live beside them in the same file.

CREATE TABLE alkstore_meta (
    key TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per job, live or dead. AUTOINCREMENT, since ids are never used again (Q14).
-- state: 0 pending, 1 processing, 2 dead.
-- place: where the claim looks for the row. 1: in the claim order (pending, or processing and known to have lapsed).
--        0: held by a claim. 2: out of the running (dead, or known to have expired and waiting for a sweep).
-- claims: how often it was claimed; never taken back, so that (id, claims) names one claim (Q5).
-- purge_at: when a sweep deletes the dead row; null keeps it.
CREATE TABLE alkstore_jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    payload BLOB NOT NULL,
    state INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    ready_at INTEGER NOT NULL,
    expires_at INTEGER,
    attempts INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    visibility_timeout_s INTEGER NOT NULL,
    backoff_base_s INTEGER NOT NULL,
    dead_letter_retention_s INTEGER,
    created_at INTEGER NOT NULL,
    worker_id TEXT,
    claimed_at INTEGER,
    claim_expires_at INTEGER,
    last_error TEXT,
    died_at INTEGER,
    claims INTEGER NOT NULL,
    place INTEGER NOT NULL,
    purge_at INTEGER
) STRICT;

-- The claim order itself (Q3); the rowid, which ends every index, is the id.
CREATE INDEX alkstore_jobs_order ON alkstore_jobs (queue, priority DESC, ready_at) WHERE place = 1;

-- Claims by deadline: a claim looks only at those that have lapsed (Q4).
CREATE INDEX alkstore_jobs_held ON alkstore_jobs (queue, claim_expires_at) WHERE place = 0;

-- Live rows that can expire: those still in the running apart from those already taken out of it (Q10).
CREATE INDEX alkstore_jobs_expiry ON alkstore_jobs (queue, place, expires_at)
    WHERE expires_at IS NOT NULL AND state < 2;

-- Dead rows that a sweep will delete (Q10).
CREATE INDEX alkstore_jobs_purge ON alkstore_jobs (queue, purge_at) WHERE purge_at IS NOT NULL;

-- One row per event of every stream; offsets grow over all of them, so within each (S1).
CREATE TABLE alkstore_events (
    "offset" INTEGER PRIMARY KEY AUTOINCREMENT,
    stream TEXT NOT NULL,
    key TEXT,
    payload BLOB NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX alkstore_events_stream ON alkstore_events (stream);

CREATE TABLE alkstore_offsets (
    stream TEXT NOT NULL,
    consumer TEXT NOT NULL,
    "offset" INTEGER NOT NULL,
    PRIMARY KEY (stream, consumer)
) STRICT, WITHOUT ROWID;

CREATE TABLE alkstore_locks (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE alkstore_schedules (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    interval_s INTEGER NOT NULL,
    queue TEXT NOT NULL,
    payload BLOB NOT NULL,
    priority INTEGER NOT NULL,
    max_attempts INTEGER,
    expires INTEGER,
    next_fire INTEGER NOT NULL
) STRICT;

CREATE INDEX alkstore_schedules_next ON alkstore_schedules (next_fire, name);

-- The latest wake of each topic: a stamp that differs from every earlier one, written in the transaction that wakes.
-- Other processes compare it with the one they saw last. Old rows may be deleted; the next stamp differs from all before.
CREATE TABLE alkstore_wakes (
    topic TEXT PRIMARY KEY,
    stamp INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last fencing token given out (L5).
INSERT INTO alkstore_meta (key, value) VALUES ('lock_token', 0);
