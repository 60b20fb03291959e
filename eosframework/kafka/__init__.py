"""Everything that talks to Kafka: producers, consumers, the registry, admin, the taxonomy.

The only importer of confluent_kafka and kafka-python. It implements the ports that `processing`
asks for and says what each broker error means; what to do about it is the worker's to decide.

For code written for confluent_kafka there are two drop-ins: `TransactionalProducer`, whose
transactions a delayed frame cannot tear, and `ReadCommittedConsumer`.
"""

from eosframework.kafka.consumer.read_committed import ReadCommittedConsumer
from eosframework.kafka.producer.transactional import TransactionalProducer

__all__ = ["ReadCommittedConsumer", "TransactionalProducer"]
