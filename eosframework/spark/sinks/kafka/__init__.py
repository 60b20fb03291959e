"""A sink of Spark that writes to Kafka.

Owns the records as columns of the user's rows, the batches in the control topic, and the attempts
of a shard: its transactions, its progress and its receipts. `driver` runs in the driver, `shards`
and all below it on executors; `audit` judges the topics afterwards.
"""
