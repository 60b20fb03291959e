-- name: durable()!
-- Wait for the disk in this transaction, where the session would not.
SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') IN ('off', 'local');

-- name: take_ids(application, ids)
-- Raise the epochs of transactional ids and return their last decisions (V4). It waits for a
-- transaction that has locked one of them, so its result is decided.
INSERT INTO eosframework.decisions AS known (application, transactional_id, epoch)
SELECT :application, id, 1
FROM unnest(:ids::text[]) AS id
ORDER BY id
ON CONFLICT (application, transactional_id)
    DO UPDATE SET epoch = known.epoch + 1, taken_at = now()
RETURNING known.transactional_id, known.epoch, known.decision;

-- name: add_offsets(application, topics, partitions)!
-- Add the partitions of which nothing was ever decided.
INSERT INTO eosframework.decided_offsets (application, topic, partition)
SELECT :application, wanted.topic, wanted.partition
FROM unnest(:topics::text[], :partitions::integer[]) AS wanted (topic, partition)
ORDER BY wanted.topic, wanted.partition
ON CONFLICT DO NOTHING;

-- name: decided_offsets(application)
-- Return the offsets of an application.
SELECT topic, partition, next_offset
FROM eosframework.decided_offsets
WHERE application = :application
ORDER BY topic, partition;

-- name: decide(application, id_, epoch, decision)$
-- Store a decision if the epoch is still the writer's (V2). Later statements of the transaction may
-- still undo it.
UPDATE eosframework.decisions
SET decision = :decision, decided_at = now()
WHERE application = :application AND transactional_id = :id_ AND epoch = :epoch
RETURNING epoch;

-- name: advance_offsets(application, topics, partitions, expected, next_offsets)
-- Advance the offsets that are still those before the transaction, and return these (V2).
UPDATE eosframework.decided_offsets AS known
SET next_offset = wanted.next_offset
FROM unnest(
    :topics::text[], :partitions::integer[], :expected::bigint[], :next_offsets::bigint[]
) AS wanted (topic, partition, expected, next_offset)
WHERE known.application = :application
    AND known.topic = wanted.topic
    AND known.partition = wanted.partition
    AND known.next_offset IS NOT DISTINCT FROM wanted.expected
RETURNING known.topic, known.partition;

-- name: end_blocking(pid)!
-- End the sessions that a session waits for.
SELECT pg_terminate_backend(blocking) FROM unnest(pg_blocking_pids(:pid)) AS blocking;

-- name: set_offsets(application, topics, partitions, next_offsets)!
-- Set offsets; NULL forgets one.
INSERT INTO eosframework.decided_offsets AS known (application, topic, partition, next_offset)
SELECT :application, wanted.topic, wanted.partition, wanted.next_offset
FROM unnest(:topics::text[], :partitions::integer[], :next_offsets::bigint[])
    AS wanted (topic, partition, next_offset)
ORDER BY wanted.topic, wanted.partition
ON CONFLICT (application, topic, partition) DO UPDATE SET next_offset = excluded.next_offset;

-- name: forget_decisions(application)!
-- Forget what was decided, and raise the epochs: all of it is in Kafka.
UPDATE eosframework.decisions SET decision = NULL, epoch = epoch + 1
WHERE application = :application;

-- name: known_ids(application)
-- Return the transactional ids of an application.
SELECT transactional_id FROM eosframework.decisions
WHERE application = :application
ORDER BY transactional_id;

-- name: forget_offsets(application)!
-- Forget what was decided of each partition.
DELETE FROM eosframework.decided_offsets WHERE application = :application;

-- name: take_as_long_as_it_takes()!
-- Let the statements of this transaction, and the pauses between them, take any time.
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout');
