-- name: facts()^
-- Return the system identifier, timeline and name of the database, and whether it can be relayed
-- from.
SELECT system_identifier::text,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int END,
       current_database(),
       pg_is_in_recovery(),
       current_setting('wal_level'),
       to_regclass('eosframework.outbox') IS NOT NULL
FROM pg_control_system();

-- name: limit_idleness(idle)^
-- End a session that is idle for so long, which releases its locks on shards. Make its commits durable.
SELECT set_config('idle_session_timeout', :idle, false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'off' THEN 'on' WHEN 'local' THEN 'on' ELSE current_setting('synchronous_commit')
           END, false);

-- name: lock_shard(relay, shard)$
-- Take the lock on a shard, for as long as this session lasts; False: another session has it.
SELECT pg_try_advisory_lock(:relay, :shard);

-- name: unlock_shard(relay, shard)$
-- Release the lock on a shard.
SELECT pg_advisory_unlock(:relay, :shard);

-- name: has_lock(relay_oid, shard)$
-- True if this session has the lock on a shard.
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
      AND classid = :relay_oid::oid AND objid = :shard::oid AND objsubid = 2
      AND mode = 'ExclusiveLock');

-- name: take_part(relay, place)$
-- Count this session among the relays of its name.
SELECT pg_try_advisory_lock_shared(:relay, :place);

-- name: relays(relay_oid, place)$
-- Return the number of sessions with `take_part`.
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND mode = 'ShareLock' AND objsubid = 2
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND classid = :relay_oid::oid AND objid = :place::oid;

-- name: turn(name, shard)^
-- Return the turn counter, and the number up to which messages were removed.
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
-- Return the names under which the outbox was relayed, with the number of their shards.
SELECT name, max(shard) + 1 FROM eosframework.relays GROUP BY name ORDER BY name;

-- name: lock_names(key)$
-- Let no other relay register until the end of the transaction.
SELECT pg_advisory_xact_lock(:key) IS NULL;

-- name: make_known(name)!
INSERT INTO eosframework.relays (name, shard, turn) VALUES (:name, 0, 0) ON CONFLICT DO NOTHING;

-- name: forget_relay(name)!
DELETE FROM eosframework.relays WHERE name = :name;

-- name: numbers()^
-- Return the last number given out (see postgres/outbox/outbox_table, FR1), and how many a session
-- takes at once.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END,
       (SELECT seqcache FROM pg_sequence WHERE seqrelid = 'eosframework.outbox_number_seq'::regclass)
FROM eosframework.outbox_number_seq;

-- name: writers()
-- Return the transactions with the table's lock (FR2): INSERT takes it before it takes a number, and
-- the commit releases it after the row became visible. A prepared transaction has no process.
SELECT virtualtransaction, pid IS NULL
FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'eosframework.outbox'::regclass
  AND pid IS DISTINCT FROM pg_backend_pid();

-- name: written()^
-- Return the insert position and the flushed position of the write-ahead log.
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn;

-- name: flush()$
-- Commit a record of its own, which flushes everything before it to disk (and to synchronous
-- standbys): a message is sent only when no crash can undo its transaction.
SELECT eosframework.flush() IS NOT NULL;

-- name: read_by_number()^
-- Force index scans: the statistics of a table that is always being emptied mislead the planner.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false);

-- name: read()
-- Return final rows of shard $4 of $3, after $1 and up to $2, at most $5. A message with a part of
-- more than $6 bytes comes without its content, to be read by size. Times are loaded as they are
-- stored: converting them to milliseconds here took as long as all the rest of a row.
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
-- Like `read`; after the first row only as many as $6 bytes allow, which takes twice as long. A
-- message of more than $7 bytes comes without its content, and does not count.
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
-- Move rows that cannot be sent out of the outbox.
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
-- Store a message of the log that cannot be sent, once.
INSERT INTO eosframework.outbox_refused
    (cluster, number, within, reason, relay, id, published_at, topic, key, value, headers, source)
VALUES (:cluster, :number, :within, :reason, :relay, :id::uuid,
        to_timestamp(:at::double precision / 1000), :topic, :key, :value, :headers::jsonb, 'slot')
ON CONFLICT DO NOTHING;

-- name: refused_places(cluster, first)
-- Return the places of messages of the log that were set aside, from a place on.
SELECT number, within FROM eosframework.outbox_refused
WHERE source = 'slot' AND cluster = :cluster AND number >= :first;

-- name: forget_republished(cluster, through)!
-- Delete marks of messages that were published again, once no relay reads their place.
DELETE FROM eosframework.outbox_refused
WHERE source = 'slot' AND cluster = :cluster AND number < :through AND republished_at IS NOT NULL;

-- name: forgers()^
-- Return whether every role may write messages into the log, under any name; the owner of `emit`;
-- and the functions that write messages.
SELECT coalesce(bool_or(has_function_privilege('public', f.oid, 'EXECUTE')), false),
       (SELECT quote_ident(pg_get_userbyid(proowner)) FROM pg_proc
        WHERE oid = 'eosframework.emit(text, bytea, bytea, jsonb)'::regprocedure),
       array_agg(f.oid::regprocedure::text)
FROM pg_proc AS f
WHERE f.pronamespace = 'pg_catalog'::regnamespace AND f.proname = 'pg_logical_emit_message';

-- name: backlog(through, shards, shard, limit)^
-- Return how many messages of a shard follow a number, counted up to a limit, and for how many
-- seconds the first of them has waited.
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
-- Return the relay's existing slots, with the place up to which each has released log.
SELECT slot_name, confirmed_flush_lsn - '0/0'::pg_lsn, wal_status
FROM pg_replication_slots WHERE slot_name = ANY(:names);

-- name: publication()$
-- True if the publication exists. pgoutput requires one; ours has no tables, since only messages are
-- read.
SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = 'eosframework_outbox');

-- name: create_slot(slot)$
SELECT lsn - '0/0'::pg_lsn FROM pg_create_logical_replication_slot(:slot, 'pgoutput');

-- name: copy_slot(original, slot)$
SELECT lsn - '0/0'::pg_lsn FROM pg_copy_logical_replication_slot(:original, :slot);

-- name: drop_slot(slot)$
SELECT pg_drop_replication_slot(:slot) IS NULL;

-- name: peek(slot, end)
-- Return changes committed up to an end, as pgoutput writes them; the slot is not advanced.
SELECT data FROM pg_logical_slot_peek_binary_changes(
    :slot, '0/0'::pg_lsn + :end::numeric, NULL,
    'proto_version', '1', 'publication_names', 'eosframework_outbox', 'messages', 'true');

-- name: decoded_from(slot)$
-- Return the place from which the server decodes the log for each peek.
SELECT restart_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = :slot;

-- name: advance(slot, through)$
SELECT end_lsn - '0/0'::pg_lsn
FROM pg_replication_slot_advance(:slot, '0/0'::pg_lsn + :through::numeric);
