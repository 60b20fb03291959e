-- name: own_sink(application, sink)^
-- Own a sink: revoke its earlier driver, and return the new epoch and the last batch. It waits for a
-- transaction that records a batch.
INSERT INTO eosframework.spark_sinks AS known (application, sink, epoch)
VALUES (:application, :sink, 1)
ON CONFLICT (application, sink) DO UPDATE SET epoch = known.epoch + 1, updated_at = now()
RETURNING known.epoch, known.batch;

-- name: record_batch(application, sink, epoch, batch)$
-- Record a batch unless the sink has another driver; return its epoch then.
UPDATE eosframework.spark_sinks
SET batch = :batch, updated_at = now()
WHERE application = :application AND sink = :sink AND epoch = :epoch
RETURNING epoch;
