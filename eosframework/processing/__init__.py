"""The consume, transform, produce, commit cycle.

Owns the order of steps that makes a record take effect exactly once: taking partitions over,
running records, deciding what a failed call means, and giving partitions up. It reaches Kafka
only through the protocols in `ports` and never decides what a broker's error code means:
that is `kafka/`'s.
"""
