-- The outbox of an application, format 1. May be applied repeatedly.
CREATE SCHEMA IF NOT EXISTS txn_outbox;

-- A single row. The epoch distinguishes this database from one with other numbers.
CREATE TABLE IF NOT EXISTS txn_outbox.settings (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL DEFAULT 1,
    epoch uuid NOT NULL DEFAULT gen_random_uuid(),
    shards integer NOT NULL CHECK (shards BETWEEN 1 AND 256),
    max_backlog bigint NOT NULL CHECK (max_backlog > 0),
    -- The maximum size of a payload in bytes. The processors do not read larger ones.
    max_payload bigint NOT NULL DEFAULT 262144 CHECK (max_payload > 0)
);
ALTER TABLE txn_outbox.settings
    ADD COLUMN IF NOT EXISTS max_payload bigint NOT NULL DEFAULT 262144 CHECK (max_payload > 0);

-- The number of events that a key ever had. Each transaction that emits for a key locks its row.
CREATE TABLE IF NOT EXISTS txn_outbox.queue (
    topic text NOT NULL,
    key text NOT NULL,
    appended bigint NOT NULL,
    PRIMARY KEY (topic, key)
);
-- The time of the last emit. NULL in rows of older versions.
ALTER TABLE txn_outbox.queue ADD COLUMN IF NOT EXISTS emitted_ms bigint;
-- The row without names: the largest number of all purged keys. New keys start after this number.
INSERT INTO txn_outbox.queue (topic, key, appended) VALUES ('', '', 0) ON CONFLICT DO NOTHING;

-- The waiting events, and the dead letters (died_ms). Insert topic, key and payload.
CREATE TABLE IF NOT EXISTS txn_outbox.event (
    -- Lengths in bytes of UTF-8, and control characters by number: independent of encoding and locale.
    topic text NOT NULL CHECK (octet_length(convert_to(topic, 'UTF8')) BETWEEN 1 AND 64
        AND topic !~ '[/\u0001-\u001f\u007f-\u009f]'),
    key text NOT NULL CHECK (octet_length(convert_to(key, 'UTF8')) BETWEEN 1 AND 300
        AND key !~ '[\u0001-\u001f\u007f-\u009f]'),
    sequence bigint NOT NULL,
    format integer NOT NULL DEFAULT 1,
    id text NOT NULL UNIQUE,
    shard integer NOT NULL,
    payload json NOT NULL,
    emitted_ms bigint NOT NULL,
    failures integer NOT NULL DEFAULT 0,
    error text,
    died_ms bigint,
    blocks boolean NOT NULL DEFAULT false,
    -- Distinguishes events that had the same position after a loss of commits.
    mark uuid NOT NULL,
    -- The number of noted starts without an end.
    unfinished integer NOT NULL DEFAULT 0,
    -- The size of the payload, because a query of the payload would read all of it.
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, key, sequence)
);
ALTER TABLE txn_outbox.event ADD COLUMN IF NOT EXISTS unfinished integer NOT NULL DEFAULT 0;
ALTER TABLE txn_outbox.event ADD COLUMN IF NOT EXISTS bytes bigint NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS event_waits ON txn_outbox.event (shard, topic, key) WHERE died_ms IS NULL;
CREATE INDEX IF NOT EXISTS event_blocks ON txn_outbox.event (topic, key) WHERE blocks;

-- The largest fencing token that claimed a shard of a topic.
CREATE TABLE IF NOT EXISTS txn_outbox.fence (
    topic text NOT NULL,
    shard integer NOT NULL,
    token bigint NOT NULL,
    PRIMARY KEY (topic, shard)
);

-- Runs with the privileges of its owner, so that an application only needs to insert topic, key and payload.
-- Has its own search path, so that no function of the application replaces one of these.
CREATE OR REPLACE FUNCTION txn_outbox.place() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    settings txn_outbox.settings;
    floor bigint;
    digest bytea := sha256(convert_to(NEW.topic || '/' || NEW.key, 'UTF8'));
BEGIN
    -- Characters that change the direction of a text, by their bytes in UTF-8.
    IF encode(convert_to(NEW.topic || NEW.key, 'UTF8'), 'hex')
            ~ '^(..)*(d89c|e2808[ef]|e280a[8-e]|e281a[6-9])' THEN
        RAISE EXCEPTION 'the topic or the key has a character that controls how a text is shown'
            USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO STRICT settings FROM txn_outbox.settings;
    NEW.emitted_ms := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    INSERT INTO txn_outbox.queue AS q (topic, key, appended, emitted_ms)
        VALUES (NEW.topic, NEW.key, 1, NEW.emitted_ms)
        ON CONFLICT (topic, key) DO UPDATE SET appended = q.appended + 1, emitted_ms = EXCLUDED.emitted_ms
        RETURNING q.appended INTO NEW.sequence;
    IF NEW.sequence = 1 THEN
        -- A separate, later statement: an earlier purge of this key is visible here.
        IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
            SELECT q.appended INTO STRICT floor FROM txn_outbox.queue q WHERE q.topic = '' AND q.key = '';
        ELSE
            -- The snapshot of this transaction may be older: then this statement fails with 40001.
            SELECT q.appended INTO STRICT floor FROM txn_outbox.queue q WHERE q.topic = '' AND q.key = ''
                FOR SHARE;
        END IF;
        IF floor > 0 THEN
            NEW.sequence := floor + 1;
            UPDATE txn_outbox.queue q SET appended = NEW.sequence
                WHERE q.topic = NEW.topic AND q.key = NEW.key;
        END IF;
    END IF;
    -- Waiting events have consecutive positions up to this one. The queue is therefore full if the event
    -- max_backlog positions earlier still waits. The check reads one row, however large the backlog is.
    IF EXISTS (SELECT FROM txn_outbox.event e WHERE e.topic = NEW.topic AND e.key = NEW.key
            AND e.sequence = NEW.sequence - settings.max_backlog AND e.died_ms IS NULL) THEN
        RAISE EXCEPTION '% events of %/% wait already, no more are allowed',
            settings.max_backlog, NEW.topic, NEW.key
            USING ERRCODE = 'program_limit_exceeded',
            HINT = 'retry after they are handled, or check why they are not';
    END IF;
    NEW.bytes := octet_length(NEW.payload::text);
    IF NEW.bytes > settings.max_payload THEN
        RAISE EXCEPTION 'the payload of an event of %/% has % bytes, at most % are allowed',
            NEW.topic, NEW.key, NEW.bytes, settings.max_payload
            USING ERRCODE = 'program_limit_exceeded',
            HINT = 'keep what is large elsewhere, or raise max_payload of txn_outbox.settings';
    END IF;
    -- The first 32 bits of SHA-256. The processors compute the same shard.
    NEW.shard := (get_byte(digest, 0)::bigint * 16777216 + get_byte(digest, 1) * 65536
        + get_byte(digest, 2) * 256 + get_byte(digest, 3)) % settings.shards;
    NEW.format := 1;
    NEW.id := NEW.topic || '/' || NEW.sequence || '/' || NEW.key;
    NEW.failures := 0;
    NEW.unfinished := 0;
    NEW.error := NULL;
    NEW.died_ms := NULL;
    NEW.blocks := false;
    NEW.mark := gen_random_uuid();
    RETURN NEW;
END
$$;

REVOKE ALL ON FUNCTION txn_outbox.place() FROM PUBLIC;

CREATE OR REPLACE TRIGGER place BEFORE INSERT ON txn_outbox.event
    FOR EACH ROW EXECUTE FUNCTION txn_outbox.place();
