-- Messages that Kafka cannot take. The relay moves a row of the outbox here, in one statement, so a
-- message is either sent or set aside. A message of the log (source = 'slot') stays in the log: its
-- row here keeps a later relay from sending it, so it is only marked when it is published again.
CREATE TABLE eosframework.outbox_refused (
    entry        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    refused_at   timestamptz NOT NULL DEFAULT now(),
    reason       text NOT NULL,
    relay        text NOT NULL,
    id           uuid NOT NULL,
    published_at timestamptz NOT NULL,
    topic        text NOT NULL,
    key          bytea,
    value        bytea,
    headers      jsonb,
    source       text NOT NULL CHECK (source IN ('table', 'slot')),
    number       bigint NOT NULL,
    within       int NOT NULL DEFAULT 0,
    cluster      text,
    republished_at timestamptz
);

COMMENT ON TABLE eosframework.outbox_refused IS
    'messages that Kafka cannot take; eosframework.republish(id) publishes one again';

CREATE INDEX outbox_refused_id ON eosframework.outbox_refused (id);

-- A message of the log is set aside once, however often its place is read. A place means something
-- in one cluster only.
CREATE UNIQUE INDEX outbox_refused_place ON eosframework.outbox_refused (cluster, number, within)
    WHERE source = 'slot';

-- Refuses in the caller's own transaction what no relay could send. 64 MiB: what a relay can hold;
-- a topic's own limit is known to Kafka only.
CREATE FUNCTION eosframework.require_sendable(topic text, key bytea, value bytea, headers jsonb)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wrong text;
BEGIN
    -- Not [...]{1,249}: a bounded repetition took longer than all the rest.
    IF topic IS NULL OR topic ~ '[^a-zA-Z0-9._-]' OR topic IN ('', '.', '..')
       OR pg_catalog.length(topic) > 249 THEN
        RAISE EXCEPTION 'topic % is not the name of a Kafka topic',
            coalesce(pg_catalog.quote_literal(pg_catalog.left(topic, 100)), 'NULL')
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'use letters, digits, ".", "_" and "-", at most 249 of them';
    ELSIF pg_catalog.starts_with(topic, '__') THEN
        RAISE EXCEPTION 'topic % belongs to the brokers', pg_catalog.quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'publish to a topic whose name does not begin with "__"';
    -- As InternalTopic.parse (txnid/names.py).
    ELSIF topic ~ '-(control|ownership|changelog|repartition|rows|retry|replay)$'
          AND topic ~ ('^[a-z0-9][a-z0-9._-]*-(control|ownership'
                       '|[a-z0-9_.]+-(changelog|repartition|rows|replay)'
                       '|[a-z0-9_.]+[.][1-9][0-9]*(ms|s|m|h|d)-retry)$') THEN
        RAISE EXCEPTION 'topic % has the name of an internal topic of an application',
            pg_catalog.quote_literal(topic)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'publish to a topic of another name; a foreign record damages its state';
    END IF;
    IF coalesce(pg_catalog.octet_length(key), 0)::bigint
       + coalesce(pg_catalog.octet_length(value), 0) > 67108864 THEN
        RAISE EXCEPTION 'a message of % bytes for topic % is too large',
            coalesce(pg_catalog.octet_length(key), 0)::bigint
            + coalesce(pg_catalog.octet_length(value), 0), pg_catalog.quote_literal(topic)
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'publish at most 67108864 bytes; most topics take 1048588';
    END IF;
    IF headers IS NULL THEN
        RETURN;
    ELSIF pg_catalog.octet_length(headers::text) > 65536 THEN
        RAISE EXCEPTION 'the headers of a message for topic % are larger than 65536 bytes',
            pg_catalog.quote_literal(topic)
            USING ERRCODE = 'program_limit_exceeded',
                  HINT = 'put large contents into the value';
    END IF;
    CASE pg_catalog.jsonb_typeof(headers)
        WHEN 'null' THEN
            RETURN;
        WHEN 'object' THEN
            SELECT name INTO wrong FROM pg_catalog.jsonb_each(headers) AS header (name, content)
            WHERE NOT eosframework.is_header_value(content) LIMIT 1;
        WHEN 'array' THEN
            SELECT pair::text INTO wrong FROM pg_catalog.jsonb_array_elements(headers) AS given (pair)
            WHERE CASE
                WHEN pg_catalog.jsonb_typeof(pair) <> 'array' THEN true
                WHEN pg_catalog.jsonb_array_length(pair) <> 2 THEN true
                WHEN pg_catalog.jsonb_typeof(pair -> 0) <> 'string' THEN true
                ELSE NOT eosframework.is_header_value(pair -> 1) END
            LIMIT 1;
        ELSE
            wrong := headers::text;
    END CASE;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'the headers of a message for topic % cannot be sent: %',
            pg_catalog.quote_literal(topic), pg_catalog.left(wrong, 100)
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'give an object, {"name": "text"}, or pairs, [["name", "text"]]; '
                         'bytes are {"base64": "..."}';
    END IF;
END $$;

-- Whether JSON can be the value of a header: all of it can but {"base64": TEXT} that is none.
CREATE FUNCTION eosframework.is_header_value(content jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    encoded text;
BEGIN
    IF pg_catalog.jsonb_typeof(content) <> 'object' THEN
        RETURN true;
    ELSIF pg_catalog.jsonb_typeof(content -> 'base64') IS DISTINCT FROM 'string'
          OR content - 'base64' <> '{}' THEN
        RETURN true;
    END IF;
    encoded := pg_catalog.translate(content ->> 'base64', E' \t\r\n', '');
    RETURN encoded ~ '^[A-Za-z0-9+/]*={0,2}$' AND pg_catalog.length(encoded) % 4 = 0;
END $$;

CREATE OR REPLACE FUNCTION eosframework.publish(
    topic text, key bytea, value bytea, headers jsonb DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM eosframework.require_sendable(topic, key, value, headers);
    INSERT INTO eosframework.outbox (topic, key, value, headers)
    VALUES (publish.topic, publish.key, publish.value, publish.headers);
END $$;

-- As the owner of the function: PUBLIC need not be let near pg_logical_emit_message, by which
-- anybody could forge a message.
CREATE OR REPLACE FUNCTION eosframework.emit(
    topic text, key bytea, value bytea, headers jsonb DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM eosframework.emit_as(pg_catalog.gen_random_uuid(), topic, key, value, headers);
END $$;

CREATE FUNCTION eosframework.emit_as(
    id uuid, topic text, key bytea, value bytea, headers jsonb)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM eosframework.require_sendable(topic, key, value, headers);
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
            'id', id,
            'topic', topic,
            'key', pg_catalog.octet_length(key),
            'value', pg_catalog.octet_length(value),
            'headers', headers,
            'at', (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint
        )::text || E'\n', 'UTF8') || coalesce(key, '') || coalesce(value, ''));
    PERFORM eosframework.wake();
END $$;

REVOKE EXECUTE ON FUNCTION eosframework.emit_as FROM PUBLIC;

-- Puts all that was committed on disk, by a record of its own in the log. A relay without a right to
-- pg_logical_emit_message calls it.
CREATE FUNCTION eosframework.flush() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_catalog.pg_logical_emit_message(true, 'eosframework.flush', '');
END $$;

-- Publishes once more what was set aside under an id, and returns how many messages that were. A
-- message keeps its id. Needs the privileges of the owner of the schema.
CREATE FUNCTION eosframework.republish(id uuid, topic text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    refused eosframework.outbox_refused;
    target text;
    count int := 0;
BEGIN
    FOR refused IN
        SELECT * FROM eosframework.outbox_refused AS r
        WHERE r.id = republish.id AND r.republished_at IS NULL ORDER BY r.entry FOR UPDATE
    LOOP
        target := coalesce(republish.topic, refused.topic);
        IF refused.source = 'slot' THEN
            PERFORM eosframework.emit_as(
                refused.id, target, refused.key, refused.value, refused.headers);
            UPDATE eosframework.outbox_refused AS r SET republished_at = pg_catalog.now()
            WHERE r.entry = refused.entry;
        ELSE
            PERFORM eosframework.require_sendable(
                target, refused.key, refused.value, refused.headers);
            INSERT INTO eosframework.outbox (id, topic, key, value, headers)
            VALUES (refused.id, target, refused.key, refused.value, refused.headers);
            DELETE FROM eosframework.outbox_refused AS r WHERE r.entry = refused.entry;
        END IF;
        count := count + 1;
    END LOOP;
    RETURN count;
END $$;

COMMENT ON FUNCTION eosframework.republish IS
    'publishes again what the relay has set aside: SELECT eosframework.republish(id, topic)';
REVOKE EXECUTE ON FUNCTION eosframework.republish FROM PUBLIC;
