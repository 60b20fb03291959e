"""Exactly-once stream processing over real Apache Kafka."""
