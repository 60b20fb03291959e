"""Clients of Kafka and of a schema registry, and the classification of their errors.

The only importer of confluent_kafka and kafka-python. This package implements the ports that
`transactions` declares and says what each broker error means; it decides nothing for an
application, and imports nothing of `application`.

Two classes replace those of confluent_kafka in code written for it: `TransactionalProducer`, whose
transactions a delayed request cannot tear, and `ReadCommittedConsumer`.

Public: the names in `__all__`; the modules are internal.
"""

from eosframework.kafka.consumer.read_committed import ReadCommittedConsumer
from eosframework.kafka.producer.transactional import TransactionalProducer

__all__ = ["ReadCommittedConsumer", "TransactionalProducer"]
