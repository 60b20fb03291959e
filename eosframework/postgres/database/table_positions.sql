-- name: claim_positions(application, topics, partitions, topic_ids)
-- Claim positions and return them. It waits for a transaction that has locked one of them, so its
-- result is decided; a SELECT would show the value before that transaction. A position without an
-- offset belongs to no topic yet.
INSERT INTO eosframework.positions AS known (application, topic, partition, topic_id, epoch)
SELECT :application, wanted.topic, wanted.partition, wanted.topic_id, 1
FROM unnest(:topics::text[], :partitions::integer[], :topic_ids::text[])
    AS wanted (topic, partition, topic_id)
ORDER BY wanted.topic, wanted.partition
ON CONFLICT (application, topic, partition)
    DO UPDATE SET epoch = known.epoch + 1, updated_at = now(), topic_id = CASE
        WHEN known.next_offset IS NULL THEN excluded.topic_id ELSE known.topic_id END
RETURNING known.topic, known.partition, known.topic_id, known.epoch, known.next_offset;

-- name: advance_positions(application, topics, partitions, epochs, expected, next_offsets)
-- Advance the positions that are still as they were claimed, and return these.
UPDATE eosframework.positions AS known
SET next_offset = wanted.next_offset, updated_at = now()
FROM unnest(
    :topics::text[], :partitions::integer[], :epochs::bigint[], :expected::bigint[],
    :next_offsets::bigint[]
) AS wanted (topic, partition, epoch, expected, next_offset)
WHERE known.application = :application
    AND known.topic = wanted.topic
    AND known.partition = wanted.partition
    AND known.epoch = wanted.epoch
    AND known.next_offset IS NOT DISTINCT FROM wanted.expected
RETURNING known.topic, known.partition;

-- name: add_dead_letter(application, table_name, topic, partition, offset_, key, value, headers, error)!
-- Store a record whose row was rejected.
INSERT INTO eosframework.dead_letters
    (application, table_name, topic, partition, "offset", key, value, headers, error)
VALUES
    (:application, :table_name, :topic, :partition, :offset_, :key, :value, :headers, :error);

-- name: missing_privileges(table_name, wanted)
-- Return the privileges on a table that this user does not have.
SELECT wanted
FROM unnest(:wanted::text[]) AS wanted
WHERE NOT has_table_privilege(:table_name, wanted);

-- name: check_at_once()!
-- Check deferred constraints immediately, while the rejected row can still be identified.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: known_positions(application)
-- Return the positions of an application; a pending change of one is not included.
SELECT topic, partition, topic_id, next_offset
FROM eosframework.positions
WHERE application = :application
ORDER BY topic, partition;

-- name: seen_position(application, topic, partition)^
-- Return a position and its epoch without a claim, and whether other sessions with this session's
-- application name are connected: hints that its owner is alive, not proof.
SELECT known.epoch, known.next_offset, EXISTS (
    SELECT FROM pg_stat_activity
    WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid())
FROM (SELECT) AS always
LEFT JOIN eosframework.positions AS known ON known.application = :application
    AND known.topic = :topic AND known.partition = :partition;

-- name: set_positions(application, topics, partitions, topic_ids, next_offsets)!
-- Set positions and raise their epochs, so that processes with earlier claims write no more.
INSERT INTO eosframework.positions AS known
    (application, topic, partition, topic_id, next_offset, epoch)
SELECT :application, wanted.topic, wanted.partition, wanted.topic_id, wanted.next_offset, 1
FROM unnest(
    :topics::text[], :partitions::integer[], :topic_ids::text[], :next_offsets::bigint[]
) AS wanted (topic, partition, topic_id, next_offset)
ORDER BY wanted.topic, wanted.partition
ON CONFLICT (application, topic, partition)
    DO UPDATE SET epoch = known.epoch + 1, topic_id = excluded.topic_id,
        next_offset = excluded.next_offset, updated_at = now();
