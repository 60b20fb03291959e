-- name: claim_positions(application, topics, partitions, topic_ids)
-- Take positions over and return them. It waits for a transaction that has one of them in doubt,
-- so what it returns is decided; a SELECT would show the value before that transaction. A position
-- by which nothing was written belongs to no topic yet.
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
-- Move positions on where they are still those that were claimed; return which these are.
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
-- Keep a record whose row was refused.
INSERT INTO eosframework.dead_letters
    (application, table_name, topic, partition, "offset", key, value, headers, error)
VALUES
    (:application, :table_name, :topic, :partition, :offset_, :key, :value, :headers, :error);

-- name: missing_privileges(table_name, wanted)
-- Return which privileges on a table this user does not have.
SELECT wanted
FROM unnest(:wanted::text[]) AS wanted
WHERE NOT has_table_privilege(:table_name, wanted);

-- name: check_at_once()!
-- Let a deferred constraint speak while the row that it refuses can be told from others.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: known_positions(application)
-- Return the positions of an application; while a transaction has one in doubt, as it was before.
SELECT topic, partition, topic_id, next_offset
FROM eosframework.positions
WHERE application = :application
ORDER BY topic, partition;

-- name: seen_position(application, topic, partition)^
-- Return a position and its epoch without a claim, and whether others of this session's name are
-- connected: signs of whoever has it, and nothing to go by.
SELECT known.epoch, known.next_offset, EXISTS (
    SELECT FROM pg_stat_activity
    WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid())
FROM (SELECT) AS always
LEFT JOIN eosframework.positions AS known ON known.application = :application
    AND known.topic = :topic AND known.partition = :partition;

-- name: set_positions(application, topics, partitions, topic_ids, next_offsets)!
-- Set positions and raise their epochs, so that whoever claimed them before writes no more.
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
