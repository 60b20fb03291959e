"""The consume, transform, produce, commit cycle.

Owns the order of steps by which each record takes effect exactly once: taking partitions over,
running records, deciding the outcome of a failed call, and giving partitions up. It reaches Kafka
only through the protocols in `ports` and never interprets a broker's error code: `kafka/` does.

Internal: no module here is public.
"""
