"""A hanging transaction, made for real: written by a producer whose coordinator does not know.

Needs brokers with transaction.partition.verification.enable=false, as all before Kafka 3.6 were.
"""

from __future__ import annotations

import time
from typing import Any

from eosframework.kafka.transactions.vendor import errors, producer_protocol, records
from eosframework.kafka.transactions.wire import Wire
from eosframework.records import TopicPartition


def write_unannounced(wire: Wire, partition: TopicPartition, value: bytes) -> int:
    """Write a transactional record into a partition that was added to no transaction.

    As a delayed frame of a producer that is gone does. Returns the producer's id.
    """
    producer = _new_producer_id(wire)
    builder = records.MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 16)
    builder.set_producer_state(producer.producer_id, producer.producer_epoch, 0, True)
    builder.append(timestamp=round(time.time() * 1000), key=None, value=value)
    builder.close()
    topic = producer_protocol.ProduceRequest.TopicProduceData
    request = producer_protocol.ProduceRequest(
        transactional_id="a.delayed.frame",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            topic(
                name=partition.topic,
                partition_data=[
                    topic.PartitionProduceData(index=partition.partition, records=builder.buffer())
                ],
            )
        ],
        max_version=11,
    )
    answer = wire.send(request, wire.leaders([partition.topic])[partition])
    _raise(answer.responses[0].partition_responses[0].error_code)
    return producer.producer_id


def _new_producer_id(wire: Wire) -> Any:
    request = producer_protocol.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, max_version=4
    )
    answer = wire.send(request)
    _raise(answer.error_code)
    return answer


def _raise(code: int) -> None:
    if code:
        raise errors.for_code(code)()
