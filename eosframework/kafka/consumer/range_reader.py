"""Reads outside any group: fixed ranges of partitions, or everything as it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import TopicPartition as KafkaPartition

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, PositionLost, RunError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.defaults import consumer_properties
from eosframework.kafka.client.properties import Role, client_properties, new_client
from eosframework.kafka.consumer.message_batches import (
    UNREADABLE,
    by_partition,
    error_of,
    unreadable,
)
from eosframework.kafka.consumer.read_committed import ReadCommittedConsumer
from eosframework.kafka.taxonomy import Call, Category, classify
from eosframework.records import TopicPartition
from eosframework.transactions.ports import Message

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""By partition, the first offset to read and the offset to stop before."""

Batch = tuple[TopicPartition, list[Message]]
"""Messages of one partition, in offset order."""

BATCH_RECORDS = 2000
POLL_SECONDS = 0.05
FETCH_WAIT_MILLISECONDS = 5
"""The end of a range at the end of its log shows only after a fetch has waited this long; with 50
that wait was half of the time to read a short range."""

FOLLOW_WAIT_MILLISECONDS = 50
"""The same for a reader without an end, which asks again each time."""

PREFETCH_KILOBYTES = 65_536
"""Shared by all partitions that are read at once."""

_GROUP = "eosframework.reader"
"""librdkafka requires a group id; the reader neither joins the group nor commits to it."""


def read_ranges(
    settings: KafkaSettings,
    ranges: Ranges,
    *,
    undecided: bool = False,
    patience_seconds: float | None = None,
) -> Generator[Batch]:
    """Yield the committed records of each range, in bounded memory.

    Args:
        settings: how to reach the cluster.
        ranges: their ends are at most the partitions' last stable offsets.
        undecided: include records of open and aborted transactions; the ends are then at most the
            high watermarks.
        patience_seconds: the longest time without a record; None: a request's timeout.

    Raises:
        PositionLost: retention removed the start of a range; read its bounds again.
        ClusterUnreachable: no record arrived in that time.
    """
    ends = {partition: end for partition, (start, end) in ranges.items() if start < end}
    if not ends:
        return
    starts = {partition: ranges[partition][0] for partition in ends}
    longest_seconds = patience_seconds or settings.request_timeout_seconds + 5
    with closing(assigned_consumer(settings, starts, undecided=undecided)) as consumer:
        silent_since = time.monotonic()
        while ends:
            batches, read_to = consume(consumer)
            if not read_to and time.monotonic() - silent_since > longest_seconds:
                raise ClusterUnreachable(
                    f"{', '.join(map(str, ends))} gave nothing for {longest_seconds:g} s; are the "
                    f"brokers at {settings.bootstrap_servers} up?"
                )
            for partition, messages in batches.items():
                if kept := _before(messages, ends.get(partition, 0)):
                    yield partition, kept
            if read_to:  # only now: the consumer of this generator may have taken long
                silent_since = time.monotonic()
            done = [p for p in read_to if p in ends and read_to[p] >= ends[p]]
            for partition in done:
                del ends[partition]
            if done:
                consumer.incremental_unassign([KafkaPartition(*partition) for partition in done])


def hold_nothing(settings: KafkaSettings, admin: ClusterAdmin, ranges: Ranges) -> bool:
    """Return whether no range contains a committed record.

    Records that retention has removed do not count.

    Raises:
        ClusterUnreachable: no broker answered in time.
    """
    bounds = admin.log_bounds(list(ranges))
    kept = {p: (max(start, bounds[p][0]), end) for p, (start, end) in ranges.items()}
    return not any(messages for _, messages in read_ranges(settings, kept))


def without_records(settings: KafkaSettings, ranges: Ranges) -> frozenset[TopicPartition]:
    """Return the partitions whose range contains no committed record.

    The first record of a partition decides. A partition that does not answer in time, or that may
    not be read, is left out.

    Args:
        settings: how to reach the cluster.
        ranges: their ends are at most the partitions' last stable offsets.
    """
    left = {p: end for p, (start, end) in ranges.items() if start < end}
    empty = {p for p in ranges if p not in left}
    if not left:
        return frozenset(empty)
    deadline = time.monotonic() + settings.request_timeout_seconds
    starts = {partition: ranges[partition][0] for partition in left}
    with closing(assigned_consumer(settings, starts)) as consumer, suppress(RunError, PositionLost):
        while left and time.monotonic() < deadline:
            batches, read_to = consume(consumer)
            holding = {p for p, found in batches.items() if found[0].offset() < left.get(p, 0)}
            done = [p for p, end in left.items() if p in holding or read_to.get(p, 0) >= end]
            empty.update(p for p in done if p not in holding)
            for partition in done:
                del left[partition]
            if done:
                consumer.incremental_unassign([KafkaPartition(*partition) for partition in done])
    return frozenset(empty)


def follow(
    settings: KafkaSettings,
    partitions: Iterable[TopicPartition],
    stopped: Callable[[], bool],
) -> Generator[Batch]:
    """Yield committed records from the first offset on, until `stopped`.

    Raises:
        PositionLost: retention removed a record before it was read.
    """
    starts, wait = dict.fromkeys(partitions, 0), FOLLOW_WAIT_MILLISECONDS
    with closing(assigned_consumer(settings, starts, wait_milliseconds=wait)) as consumer:
        while not stopped():
            yield from consume(consumer)[0].items()


def assigned_consumer(
    settings: KafkaSettings,
    starts: Mapping[TopicPartition, int],
    *,
    undecided: bool = False,
    wait_milliseconds: int = FETCH_WAIT_MILLISECONDS,
) -> Consumer:
    """Return a consumer that reads partitions from the given offsets and reports their ends.

    Args:
        settings: how to reach the cluster.
        starts: by partition, the first offset.
        undecided: also read records that are not committed.
        wait_milliseconds: the longest wait of a fetch at the end of a log.
    """
    share = max(PREFETCH_KILOBYTES // len(starts), 1024)
    properties = {
        **client_properties(settings, Role.CONSUMER),
        "group.id": _GROUP,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": wait_milliseconds,
        "queued.max.messages.kbytes": min(share, 16_384),
    }
    if undecided:
        properties = {**consumer_properties(properties), "isolation.level": "read_uncommitted"}
    consumer = new_client(Consumer if undecided else ReadCommittedConsumer, properties)
    consumer.assign([KafkaPartition(*p, offset) for p, offset in starts.items()])
    return consumer


def consume(
    consumer: Consumer, seconds: float = POLL_SECONDS
) -> tuple[dict[TopicPartition, list[Message]], dict[TopicPartition, int]]:
    """Return messages by partition, and the next offset of each partition that answered.

    Raises:
        PositionLost: retention removed the next record.
        RunError: a partition cannot be read.
    """
    # `consume` waits for as many messages as it is asked for, or all of the time.
    first = consumer.poll(seconds)
    messages = [] if first is None else [first, *consumer.consume(BATCH_RECORDS - 1, 0)]
    read_to: dict[TopicPartition, int] = {}
    if any(map(error_of, messages)):
        messages = _without_errors(messages, read_to)
    batches = by_partition(messages)
    for partition, found in batches.items():
        read_to[partition] = max(read_to.get(partition, 0), found[-1].offset() + 1)
    return batches, read_to


def _before(messages: list[Message], end: int) -> list[Message]:
    if messages[-1].offset() < end:
        return messages
    return [message for message in messages if message.offset() < end]


def _without_errors(
    messages: Iterable[KafkaMessage], read_to: dict[TopicPartition, int]
) -> list[KafkaMessage]:
    """Return the messages without errors; note the next offset of partitions at their end."""
    proper: list[KafkaMessage] = []
    # Any: the stubs make every part of a message optional; a fetched message has them all.
    one: Any
    for one in messages:
        error: KafkaError | None = one.error()
        if error is None:
            proper.append(one)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            read_to[TopicPartition(one.topic(), one.partition())] = one.offset()
        else:
            _refuse(one, error)
    return proper


def _refuse(message: Any, error: KafkaError) -> None:
    """Raise for a permanent error."""
    if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
        raise PositionLost(
            f"{message.topic()}[{message.partition()}]: the next offset to read was removed from "
            f"the log meanwhile ({error.str()}); start again, or lengthen the topic's retention"
        )
    if error.code() in UNREADABLE:
        partition = TopicPartition(message.topic(), message.partition())
        raise RunError(unreadable(partition, message.offset(), error)) from KafkaException(error)
    # librdkafka looks up the coordinator of `_GROUP`, which the reader never uses.
    is_lookup = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    if not is_lookup and classify(error, Call.CONSUME).category is not Category.RETRIABLE:
        raise RunError(
            f"{message.topic()}[{message.partition()}] cannot be read: {error.str()}"
        ) from KafkaException(error)
