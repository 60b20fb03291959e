"""The Spark data source `eos_kafka`: `df.write` and `df.writeStream` into a Kafka sink.

Owns the part that Spark runs in processes of its own (`source`, `row_files`), the options of the
source (`source_options`), and the server through which those processes reach the driver's sink
(`driver_server`). Batches and records are those of `sinks/`; nothing here decides about them.

`source` and `row_files` are imported by each process that Spark starts, for each batch, so they
import nothing that takes long.
"""
