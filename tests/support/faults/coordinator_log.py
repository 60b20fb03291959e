"""Entries of a transaction coordinator's log, written by hand.

The coordinator does not read them while it runs, as it does not know of a marker that is missing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect.coordinators import log_partition
from eosframework.kafka.inspect.formats import StateValue, TxnState
from eosframework.kafka.inspect.vendor import errors, records
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from tests.support.faults.hanging import produce_request

MAY_WRITE_INTERNAL_TOPICS = "__admin_client"
"""The client id whose records brokers take for internal topics."""


def write_transaction(
    servers: str,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Sequence[TopicPartition],
    *,
    commit: bool,
) -> None:
    """Write the states of a whole transaction of a producer with its epoch."""
    ended = (
        (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)
        if commit
        else (TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT)
    )
    for state in (TxnState.ONGOING, *ended):
        now_ms = round(time.time() * 1000)
        taking_part = () if state is ended[1] else tuple(sorted(partitions))
        value = StateValue(*producer, 60_000, state, taking_part, now_ms, now_ms)
        write_state(servers, transactional_id, value)


def write_state(servers: str, transactional_id: str, value: StateValue) -> None:
    """Write one state of an id."""
    name = transactional_id.encode()
    builder = records.MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 16)
    builder.append(
        timestamp=value.updated_ms,
        key=struct.pack(">hh", 0, len(name)) + name,
        value=encode_state(value, 1, {}),
    )
    builder.close()
    settings = KafkaSettings(
        bootstrap_servers=servers, properties={"client.id": MAY_WRITE_INTERNAL_TOPICS}
    )
    with Wire(settings) as wire:
        log = log_partition(wire, transactional_id)
        request = produce_request(None, log, builder.buffer())
        answer = wire.send(request, wire.leaders([log.topic])[log])
        if code := answer.responses[0].partition_responses[0].error_code:
            raise errors.for_code(code)()


def encode_state(value: StateValue, version: int, tags: Mapping[int, bytes]) -> bytes:
    """Return a TransactionLogValue as Kafka's generated code writes it."""
    head = struct.pack(
        ">hqhib",
        version,
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        list(TxnState).index(value.state),
    )
    topics: dict[str, list[int]] = {}
    for topic, number in value.partitions:
        topics.setdefault(topic, []).append(number)
    compact = version >= 1
    body = varint(len(topics) + 1) if compact else struct.pack(">i", len(topics) or -1)
    for topic, numbers in topics.items():
        name = topic.encode()
        body += (varint(len(name) + 1) if compact else struct.pack(">h", len(name))) + name
        body += varint(len(numbers) + 1) if compact else struct.pack(">i", len(numbers))
        body += struct.pack(f">{len(numbers)}i", *numbers) + (b"\x00" if compact else b"")
    started = -1 if value.started_ms is None else value.started_ms
    tail = struct.pack(">qq", value.updated_ms, started)
    if compact:
        tail += varint(len(tags))
        tail += b"".join(varint(t) + varint(len(data)) + data for t, data in sorted(tags.items()))
    return head + body + tail


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])
