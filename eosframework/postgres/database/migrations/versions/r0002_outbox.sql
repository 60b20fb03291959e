-- What `publish` wrote and the relay has not removed yet. A number is taken while the table's lock is
-- held, never beforehand: CACHE 1, and nobody can choose one.
CREATE TABLE eosframework.outbox (
    number  bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    id      uuid NOT NULL DEFAULT gen_random_uuid(),
    lane    smallint NOT NULL GENERATED ALWAYS AS (
                CASE WHEN key IS NULL THEN number % 256 ELSE get_byte(sha256(key), 0) END) STORED,
    topic   text NOT NULL,
    key     bytea,
    value   bytea,
    headers jsonb
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

COMMENT ON TABLE eosframework.outbox IS 'messages for Kafka, written by eosframework.publish';

-- What each relay has counted. It never goes back, unless the database does.
CREATE TABLE eosframework.relays (
    name    text NOT NULL,
    shard   int NOT NULL,
    turn    bigint NOT NULL,
    cleaned bigint NOT NULL DEFAULT 0,
    at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, shard)
);

-- Wakes the relay when the current transaction commits; equal notifications of one are sent once.
-- PostgreSQL prepares no transaction for a two-phase commit that notified: SET LOCAL
-- eosframework.wake = off leaves the message to the relay's polling.
CREATE FUNCTION eosframework.wake() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.current_setting('eosframework.wake', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_catalog.pg_notify('eosframework_outbox', '');
    END IF;
END $$;

CREATE FUNCTION eosframework.wake_relay() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM eosframework.wake();
    RETURN NULL;
END $$;

CREATE TRIGGER wake_relay AFTER INSERT ON eosframework.outbox
FOR EACH STATEMENT EXECUTE FUNCTION eosframework.wake_relay();

-- Who may use the schema may publish, and need not be let near the table.
CREATE FUNCTION eosframework.publish(topic text, key bytea, value bytea, headers jsonb DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO eosframework.outbox (topic, key, value, headers)
    VALUES (publish.topic, publish.key, publish.value, publish.headers);
END $$;

COMMENT ON FUNCTION eosframework.publish IS
    'sends a message to Kafka if, and only if, the current transaction commits';

-- The same by the write-ahead log alone: a line of JSON, then the bytes of key and value.
CREATE FUNCTION eosframework.emit(topic text, key bytea, value bytea, headers jsonb DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_replication_slots
        WHERE slot_name LIKE 'eosframework\_%' AND confirmed_flush_lsn IS NOT NULL
          AND database = pg_catalog.current_database()
    ) THEN
        RAISE EXCEPTION 'nothing reads this database''s log, so the message would be lost'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'start eosframework relay-outbox with outbox.source=slot once before';
    END IF;
    PERFORM pg_catalog.pg_logical_emit_message(
        true, 'eosframework.outbox',
        pg_catalog.convert_to(pg_catalog.jsonb_build_object(
            'id', pg_catalog.gen_random_uuid(),
            'topic', emit.topic,
            'key', pg_catalog.octet_length(emit.key),
            'value', pg_catalog.octet_length(emit.value),
            'headers', emit.headers,
            'at', (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint
        )::text || E'\n', 'UTF8') || coalesce(emit.key, '') || coalesce(emit.value, ''));
    PERFORM eosframework.wake();
END $$;

COMMENT ON FUNCTION eosframework.emit IS
    'as publish, through the write-ahead log: for relays with outbox.source=slot';
