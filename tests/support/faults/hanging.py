"""A hanging transaction, made for real: written by a producer whose coordinator does not know.

Needs brokers with transaction.partition.verification.enable=false, as all before Kafka 3.6 were.
"""

from __future__ import annotations

import time
from typing import Any

from eosframework.kafka.inspect.vendor import errors, producer_protocol, records
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from tests.support.processes.waiting import PATIENCE_SECONDS


def write_unannounced(
    wire: Wire,
    partition: TopicPartition,
    value: bytes,
    producer: tuple[int, int] | None = None,
    key: bytes | None = None,
    sequence: int = 0,
) -> int:
    """Write a transactional record into a partition that was added to no transaction.

    As a delayed frame does. Returns the producer's id; `producer` is an id with its epoch, and a
    new one if it is not given. A compacted topic takes no record without a key. `sequence` is the
    number of records that the producer has written into the partition with that epoch.
    """
    producer_id, epoch = producer or _new_producer(wire)
    builder = records.MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 16)
    builder.set_producer_state(producer_id, epoch, sequence, True)
    builder.append(timestamp=round(time.time() * 1000), key=key, value=value)
    builder.close()
    request = produce_request("a.delayed.frame", partition, builder.buffer())
    # A broker goes on verifying for a moment after it was told not to, and refuses by this error.
    deadline = time.monotonic() + PATIENCE_SECONDS
    code = errors.InvalidProducerIdMappingError.errno
    while code == errors.InvalidProducerIdMappingError.errno and time.monotonic() < deadline:
        answer = wire.send(request, wire.leaders([partition.topic])[partition])
        code = answer.responses[0].partition_responses[0].error_code
    _raise(code)
    return producer_id


def produce_request(transactional_id: str | None, partition: TopicPartition, batch: bytes) -> Any:
    """Return the request that writes a batch into a partition."""
    topic = producer_protocol.ProduceRequest.TopicProduceData
    data = topic.PartitionProduceData(index=partition.partition, records=batch)
    return producer_protocol.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[topic(name=partition.topic, partition_data=[data])],
        max_version=11,
    )


def _new_producer(wire: Wire) -> tuple[int, int]:
    request = producer_protocol.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, max_version=4
    )

    def ask() -> tuple[int, int]:
        answer = wire.send(request)
        _raise(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    return wire.call("asking for a producer id", "IdempotentWrite on the cluster", ask)


def _raise(code: int) -> None:
    if code:
        raise errors.for_code(code)()
