-- Transactional ids that an administrator has made for an application, and the task that has each.
-- To fill a pool: INSERT INTO eosframework.transactional_ids (id, application) VALUES (ID, APP).
-- A lease ends only by `eosframework ids release`, which fences whoever still writes under the id.
CREATE TABLE eosframework.transactional_ids (
    id text PRIMARY KEY CHECK (id <> ''),
    application text NOT NULL,
    sub_topology text, -- NULL: nobody has it
    partition integer,
    added_at timestamptz NOT NULL DEFAULT now(),
    leased_at timestamptz,
    CHECK ((sub_topology IS NULL) = (partition IS NULL)),
    UNIQUE (application, sub_topology, partition)
);

COMMENT ON TABLE eosframework.transactional_ids IS
    'transactional ids for worker.ids=leased; a lease ends only by `eosframework ids release`';
