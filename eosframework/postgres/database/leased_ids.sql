-- name: has_pools()$
-- True if the table of ids exists.
SELECT to_regclass('eosframework.transactional_ids') IS NOT NULL;

-- name: pool(applications)
-- Return all ids of applications in the order in which they are leased.
SELECT id, application, sub_topology, partition
FROM eosframework.transactional_ids
WHERE application = ANY(:applications)
ORDER BY id COLLATE "C";

-- name: locked_pool(applications)
-- Like `pool`, locked for this transaction. Waits for a pending release.
SELECT id, application, sub_topology, partition
FROM eosframework.transactional_ids
WHERE application = ANY(:applications)
ORDER BY id COLLATE "C"
FOR UPDATE;

-- name: leases()
-- Return every leased id, of all applications.
SELECT id, application, sub_topology, partition
FROM eosframework.transactional_ids
WHERE sub_topology IS NOT NULL;

-- name: lease(ids, sub_topologies, partitions)!
-- Lease ids to tasks; the ids are locked and free.
UPDATE eosframework.transactional_ids AS known
SET sub_topology = wanted.sub_topology, partition = wanted.partition, leased_at = now()
FROM unnest(:ids::text[], :sub_topologies::text[], :partitions::integer[])
    AS wanted (id, sub_topology, partition)
WHERE known.id = wanted.id;

-- name: release(ids)!
-- Release ids, which are locked.
UPDATE eosframework.transactional_ids
SET sub_topology = NULL, partition = NULL, leased_at = NULL
WHERE id = ANY(:ids);

-- name: add(application, ids)
-- Put ids into a pool; return, for each given id, the application that it belongs to now.
WITH added AS (
    INSERT INTO eosframework.transactional_ids (id, application)
    SELECT wanted.id, :application FROM unnest(:ids::text[]) AS wanted (id)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
SELECT wanted.id, coalesce(known.application, :application), added.id IS NOT NULL
FROM unnest(:ids::text[]) AS wanted (id)
LEFT JOIN added ON added.id = wanted.id
LEFT JOIN eosframework.transactional_ids AS known ON known.id = wanted.id;
