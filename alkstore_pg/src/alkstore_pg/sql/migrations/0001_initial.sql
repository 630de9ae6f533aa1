-- The tables at schema version 1. Names compare bytewise: no locale, and no index that a new libc invalidates.

CREATE TABLE {schema}.migrations (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- One row per job, live or dead. Ids come from a sequence and are never used again (Q14).
-- state: 0 pending, 1 processing, 2 dead.
-- place: where a claim looks for the row. 1: in the claim order (pending, or processing and seen to have lapsed).
--        0: held by a claim. 2: out of the running (dead, or seen to have expired and waiting for a sweep).
-- claim: drawn anew for each call that claims, so that (id, claim) names one claim (Q5); null unless processing.
-- purge_at: when a sweep deletes the dead row; null keeps it.
CREATE TABLE {schema}.jobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    priority bigint NOT NULL,
    ready_at bigint NOT NULL,
    expires_at bigint,
    attempts bigint NOT NULL,
    max_attempts bigint NOT NULL,
    visibility_timeout_s bigint NOT NULL,
    backoff_base_s bigint NOT NULL,
    dead_letter_retention_s bigint,
    created_at bigint NOT NULL,
    claimed_at bigint,
    claim_expires_at bigint,
    claim bigint,
    died_at bigint,
    purge_at bigint,
    state smallint NOT NULL,
    place smallint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C",
    last_error text,
    payload bytea NOT NULL
);

-- The claim order itself (Q3).
CREATE INDEX jobs_order ON {schema}.jobs (queue, priority DESC, ready_at, id) WHERE place = 1;

-- Claims by deadline: those that a claim has not seen lapse apart from those it has (Q4).
CREATE INDEX jobs_claims ON {schema}.jobs (queue, place, claim_expires_at) WHERE state = 1;

-- Live rows that can expire: those still in the running apart from those taken out of it (Q10).
CREATE INDEX jobs_expiry ON {schema}.jobs (queue, place, expires_at) WHERE expires_at IS NOT NULL AND state < 2;

-- Dead rows that a sweep will delete (Q10).
CREATE INDEX jobs_purge ON {schema}.jobs (queue, purge_at) WHERE purge_at IS NOT NULL;

-- A queue's rows live for seconds: dead ones must go long before a fifth of a large table has died.
ALTER TABLE {schema}.jobs SET (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.05
);

-- Where a stream's offsets come from. One sequence for all streams: offsets have gaps anyway (S1, S9).
CREATE SEQUENCE {schema}.event_offsets AS bigint CACHE 1;

CREATE TABLE {schema}.events (
    "offset" bigint NOT NULL DEFAULT nextval('{schema}.event_offsets'),
    created_at bigint NOT NULL,
    stream text COLLATE "C" NOT NULL,
    key text,
    payload bytea NOT NULL,
    PRIMARY KEY (stream, "offset")
);

-- Rewritten for ever in the same few pages, without touching an index: room is left for that.
CREATE TABLE {schema}.offsets (
    stream text COLLATE "C" NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    "offset" bigint NOT NULL,
    PRIMARY KEY (stream, consumer)
) WITH (fillfactor = 50);

CREATE SEQUENCE {schema}.lock_tokens AS bigint CACHE 1;

-- asked: how often its owner was given this holding (L2). What a cancelled caller got is taken back only if it was the
-- first to ask and nobody has since.
CREATE TABLE {schema}.locks (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    token bigint NOT NULL,
    expires_at bigint NOT NULL,
    asked bigint NOT NULL DEFAULT 1
) WITH (fillfactor = 50);

CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    spec text NOT NULL,
    interval_s bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    priority bigint NOT NULL,
    max_attempts bigint,
    expires bigint,
    next_fire bigint NOT NULL
);

CREATE INDEX schedules_next ON {schema}.schedules (next_fire, name);
