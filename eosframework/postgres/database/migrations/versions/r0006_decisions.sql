-- The last transaction of each transactional id that the database has decided, with the epoch of the
-- process that has the id. A decision stores itself where the epoch is still its own.
CREATE TABLE eosframework.decisions (
    application text NOT NULL,
    transactional_id text NOT NULL,
    epoch bigint NOT NULL,
    decision bytea, -- NULL: nothing was decided
    taken_at timestamptz NOT NULL DEFAULT now(),
    decided_at timestamptz,
    PRIMARY KEY (application, transactional_id)
) WITH (fillfactor = 50);

-- Decisions are compressed already.
ALTER TABLE eosframework.decisions ALTER COLUMN decision SET STORAGE EXTERNAL;

COMMENT ON TABLE eosframework.decisions IS
    'transactions with rows, by transactional id; what Kafka lacks of them is produced again';

-- The offset after what is decided, for each partition whose task writes rows.
CREATE TABLE eosframework.decided_offsets (
    application text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    next_offset bigint, -- NULL: nothing was decided
    PRIMARY KEY (application, topic, partition)
) WITH (fillfactor = 50);
