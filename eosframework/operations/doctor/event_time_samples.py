"""Event times of the next records of a source: a few of each partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eosframework.config import KafkaSettings
from eosframework.errors import raised_by_functions
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operations.doctor.snapshot import EventTimes
from eosframework.processing.conversions import as_milliseconds
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Source

PARTITIONS = 16
RECORDS = 5
"""Sample size of each partition. If all is processed, the last records stand for the next ones."""


def next_event_times(
    settings: KafkaSettings,
    admin: ClusterAdmin,
    committed: Mapping[TopicPartition, int],
    source: Source,
    partitions: int,
) -> EventTimes | None:
    """Return the earliest and the latest event time; None: there is no record.

    Args:
        settings: connection to the cluster.
        admin: admin client of the same cluster.
        committed: next offsets of the application; a missing partition starts at its beginning.
        source: its timestamp function gives the event time, if it has one.
        partitions: number of partitions of its topic.
    """
    wanted = [TopicPartition(source.topic, number) for number in range(min(partitions, PARTITIONS))]
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition, (first, end) in admin.log_bounds(wanted).items():
        start = max(first, committed.get(partition, first))
        if start >= end:
            start = max(first, end - RECORDS)
        ranges[partition] = (start, min(start + RECORDS, end))
    times = [
        time_ms
        for _, messages in read_ranges(settings, ranges)
        for message in messages
        for time_ms in _event_time(source, message)
    ]
    return EventTimes(min(times), max(times)) if times else None


def _event_time(source: Source, message: Any) -> Iterator[int]:
    """Yield a record's event time, if it has one; `on_error` handles others at run time."""
    if source.timestamp is None:
        yield message.timestamp()[1]
        return
    value = message.value()
    try:
        decoded = value if value is None or not source.value.decode else source.value.decode(value)
        yield as_milliseconds(source.timestamp.call(decoded))
    except raised_by_functions():  # any exception of a user's function
        return
