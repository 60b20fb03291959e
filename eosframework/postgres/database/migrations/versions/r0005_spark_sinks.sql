-- The last batch of each table sink of Spark. The epoch counts the drivers that owned the sink; only
-- the newest one may record a batch.
CREATE TABLE eosframework.spark_sinks (
    application text NOT NULL,
    sink        text NOT NULL,
    epoch       bigint NOT NULL,
    batch       jsonb,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (application, sink)
);

COMMENT ON TABLE eosframework.spark_sinks IS 'the last batch of each table sink of Spark';
