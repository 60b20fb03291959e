-- The next offset to read of each partition, with the epoch of the persister that owns it. A
-- commit updates its row where both are still its own, so a zombie's touches none.
CREATE TABLE eosframework.positions (
    application text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    topic_id text NOT NULL,
    next_offset bigint, -- NULL: nothing was ever written
    epoch bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (application, topic, partition)
) WITH (fillfactor = 50);

-- Records whose row was refused, written in the transaction that went past them.
CREATE TABLE eosframework.dead_letters (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    application text NOT NULL,
    table_name text NOT NULL,
    topic text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    key bytea,
    value bytea,
    headers jsonb,
    error text NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
);
