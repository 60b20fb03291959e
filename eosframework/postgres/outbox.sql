-- name: facts()^
-- Which history of which database this is, and whether it can be relayed from.
SELECT system_identifier::text,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END,
       current_database(),
       pg_is_in_recovery(),
       current_setting('wal_level'),
       to_regclass('eosframework.outbox') IS NOT NULL
FROM pg_control_system();

-- name: limit_idleness(idle)^
-- A relay that stands still for so long loses its session, and with it the right to its shards. Its
-- commits have to last.
SELECT set_config('idle_session_timeout', :idle, false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'off' THEN 'on' WHEN 'local' THEN 'on' ELSE current_setting('synchronous_commit')
           END, false);

-- name: hold(relay, shard)$
-- The right to relay a shard, for as long as this session lasts.
SELECT pg_try_advisory_lock(:relay, :shard);

-- name: let_go(relay, shard)$
-- Gives it back.
SELECT pg_advisory_unlock(:relay, :shard);

-- name: holds(relay_oid, shard)$
-- Whether this session has it.
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
      AND classid = :relay_oid::oid AND objid = :shard::oid AND objsubid = 2
      AND mode = 'ExclusiveLock');

-- name: take_part(relay, place)$
-- Counts this session among the relays of its name.
SELECT pg_try_advisory_lock_shared(:relay, :place);

-- name: relays(relay_oid, place)$
-- How many are counted.
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 2
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid = :relay_oid::oid AND objid = :place::oid;

-- name: turn(name, shard)^
-- What was counted, and up to which number messages were removed.
SELECT coalesce(max(turn), 0), coalesce(max(cleaned), 0)
FROM eosframework.relays WHERE name = :name AND shard = :shard;

-- name: next_turn(name, shard)$
INSERT INTO eosframework.relays (name, shard, turn) VALUES (:name, :shard, 1)
ON CONFLICT (name, shard) DO UPDATE SET turn = relays.turn + 1, at = now()
RETURNING turn;

-- name: note_cleaned(through, name, shard)!
UPDATE eosframework.relays SET cleaned = greatest(cleaned, :through)
WHERE name = :name AND shard = :shard;

-- name: retire(name, shard)!
DELETE FROM eosframework.relays WHERE name = :name AND shard = :shard;

-- name: known_relays()
-- The names under which the outbox was relayed, with the number of their shards.
SELECT name, max(shard) + 1 FROM eosframework.relays GROUP BY name ORDER BY name;

-- name: lock_names(key)$
-- Until the end of the transaction no other relay is made known.
SELECT pg_advisory_xact_lock(:key) IS NULL;

-- name: make_known(name)!
INSERT INTO eosframework.relays (name, shard, turn) VALUES (:name, 0, 0) ON CONFLICT DO NOTHING;

-- name: forget_relay(name)!
DELETE FROM eosframework.relays WHERE name = :name;

-- name: numbers()^
-- The last number given out (see outbox/frontier, L1), and how many a session takes at once.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END,
       (SELECT seqcache FROM pg_sequence WHERE seqrelid = 'eosframework.outbox_number_seq'::regclass)
FROM eosframework.outbox_number_seq;

-- name: writers()
-- Who holds the table's lock (L2): INSERT takes it before it takes a number, and it is given back
-- after the row became visible. A prepared transaction has no process.
SELECT virtualtransaction, pid IS NULL
FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'eosframework.outbox'::regclass
  AND pid IS DISTINCT FROM pg_backend_pid();

-- name: written()^
-- The end of the log, and how much of it is on disk.
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn;

-- name: flush()$
-- Commits a record of its own, which puts everything before it on disk (and on synchronous
-- standbys): a message is sent only when no crash can take its transaction back.
SELECT eosframework.flush() IS NOT NULL;

-- name: read_by_number()^
-- The statistics of a table that is emptied all the time mislead the planner.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false);

-- name: read()
-- Final rows of shard $4 of $3, behind $1 and up to $2, at most $5. Where a part of a message has more
-- than $6 bytes it is left out, to be read by size. Times are loaded as they are stored: to count
-- them in milliseconds here took as long as all the rest of a row.
SELECT number, topic, CASE WHEN large IS NULL THEN value END, CASE WHEN large IS NULL THEN key END,
       at, CASE WHEN large IS NULL THEN headers END, id::text, large
FROM (
    SELECT *, CASE WHEN octet_length(value) > $6 OR octet_length(key) > $6
                     OR pg_column_size(headers) > $6 THEN 1 END AS large
    FROM eosframework.outbox
    WHERE number > $1 AND number <= $2 AND ($3 = 1 OR mod(lane, $3) = $4)
    ORDER BY number
    LIMIT $5
) AS sized
ORDER BY number;

-- name: read_by_size()
-- The same; after the first row only as many as $6 bytes allow, which takes twice as long. Nothing
-- is read of a message of more than $7 bytes, and it counts as none.
SELECT number, topic, CASE WHEN size <= $7 THEN value END, CASE WHEN size <= $7 THEN key END, at,
       CASE WHEN size <= $7 THEN headers END, id::text, bytes, size, lane
FROM (
    SELECT *, sum(CASE WHEN size <= $7 THEN size ELSE 0 END)
                  OVER (ORDER BY number ROWS UNBOUNDED PRECEDING) AS bytes
    FROM (
        SELECT *, coalesce(octet_length(value), 0)::bigint + coalesce(octet_length(key), 0)
                  + coalesce(octet_length(headers::text), 0) AS size
        FROM eosframework.outbox
        WHERE number > $1 AND number <= $2 AND ($3 = 1 OR mod(lane, $3) = $4)
        ORDER BY number
        LIMIT $5
    ) AS sized
) AS summed
WHERE bytes - CASE WHEN size <= $7 THEN size ELSE 0 END < $6
ORDER BY number;

-- name: set_aside(numbers, reasons, relay)!
-- Moves rows out of the outbox that cannot be sent.
WITH given AS (
    SELECT * FROM unnest(:numbers::bigint[], :reasons::text[]) AS given (number, reason)
), gone AS (
    DELETE FROM eosframework.outbox AS o USING given WHERE o.number = given.number
    RETURNING o.*, given.reason
)
INSERT INTO eosframework.outbox_refused
    (reason, relay, id, published_at, topic, key, value, headers, source, number)
SELECT reason, :relay, id, at, topic, key, value, headers, 'table', number
FROM gone ORDER BY number;

-- name: mark_refused(cluster, number, within, reason, relay, id, at, topic, key, value, headers)!
-- Keeps a message of the log that cannot be sent, once.
INSERT INTO eosframework.outbox_refused
    (cluster, number, within, reason, relay, id, published_at, topic, key, value, headers, source)
VALUES (:cluster, :number, :within, :reason, :relay, :id::uuid,
        to_timestamp(:at::double precision / 1000), :topic, :key, :value, :headers::jsonb, 'slot')
ON CONFLICT DO NOTHING;

-- name: refused_places(cluster, first)
-- Where the messages of the log are that were set aside, from a place on.
SELECT number, within FROM eosframework.outbox_refused
WHERE source = 'slot' AND cluster = :cluster AND number >= :first;

-- name: forget_republished(cluster, through)!
-- What was published again need not be known any more once no relay reads its place.
DELETE FROM eosframework.outbox_refused
WHERE source = 'slot' AND cluster = :cluster AND number < :through AND republished_at IS NOT NULL;

-- name: forgers()^
-- Whether every role may write messages into the log, under any name; and who owns `emit`.
SELECT coalesce(bool_or(has_function_privilege('public', f.oid, 'EXECUTE')), false),
       (SELECT quote_ident(pg_get_userbyid(proowner)) FROM pg_proc
        WHERE oid = 'eosframework.emit(text, bytea, bytea, jsonb)'::regprocedure),
       array_agg(f.oid::regprocedure::text)
FROM pg_proc AS f
WHERE f.pronamespace = 'pg_catalog'::regnamespace AND f.proname = 'pg_logical_emit_message';

-- name: backlog(through, shards, shard, limit)^
-- How many messages of a shard are behind a number, counted up to a limit, and for how many seconds
-- the first of them has waited.
SELECT count(*), coalesce(greatest(extract(epoch FROM clock_timestamp() - min(at)), 0), 0)
FROM (
    SELECT at FROM eosframework.outbox
    WHERE number > :through AND (:shards = 1 OR mod(lane, :shards) = :shard)
    ORDER BY number
    LIMIT :limit
) AS unsent;

-- name: clean(through, shards, shard, limit)!
DELETE FROM eosframework.outbox
WHERE number IN (
    SELECT number FROM eosframework.outbox
    WHERE number <= :through AND mod(lane, :shards) = :shard
    ORDER BY number
    LIMIT :limit);

-- name: slots(names)
-- The relay's slots that exist, with what each has let go of.
SELECT slot_name, confirmed_flush_lsn - '0/0'::pg_lsn, wal_status
FROM pg_replication_slots WHERE slot_name = ANY(:names);

-- name: publication()$
-- pgoutput wants one; ours has no tables, since messages are all that is read.
SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = 'eosframework_outbox');

-- name: create_slot(slot)$
SELECT lsn - '0/0'::pg_lsn FROM pg_create_logical_replication_slot(:slot, 'pgoutput');

-- name: copy_slot(original, slot)$
SELECT lsn - '0/0'::pg_lsn FROM pg_copy_logical_replication_slot(:original, :slot);

-- name: drop_slot(slot)$
SELECT pg_drop_replication_slot(:slot) IS NULL;

-- name: peek(slot, end, changes)
-- What was committed up to an end, as pgoutput writes it; the slot stays where it is.
SELECT data FROM pg_logical_slot_peek_binary_changes(
    :slot, '0/0'::pg_lsn + :end::numeric, :changes,
    'proto_version', '1', 'publication_names', 'eosframework_outbox', 'messages', 'true');

-- name: advance(slot, through)$
SELECT end_lsn - '0/0'::pg_lsn
FROM pg_replication_slot_advance(:slot, '0/0'::pg_lsn + :through::numeric);
