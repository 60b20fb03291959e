"""librdkafka statistics of this process's clients, summed over all of one kind.

Clients make statistics only if metrics are collected. The newest text of each client is kept and
parsed on demand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakSet

import orjson

from eosframework.kafka.client.throttling import announced_seconds
from eosframework.records import TopicPartition

INTERVAL_SECONDS = 2.0
"""The greatest age of consumer statistics. A partition takes about 1 kB of the text."""

PRODUCER_INTERVAL_SECONDS = 10.0
"""The greatest age of producer statistics. There are as many producers as tasks, and each lists
every partition of its topics: 16 of them, with 1,000 partitions, make 12 MB at a time."""

CONSUMER, PRODUCER = "consumer", "producer"


@dataclass(frozen=True, slots=True)
class Ends:
    """End offsets of a partition, as of the last fetch.

    Args:
        stable: the last stable offset; records from there on belong to open transactions.
        last: the high watermark.
    """

    stable: int
    last: int


@dataclass(frozen=True, slots=True)
class Clients:
    """All clients of one kind in this process.

    Args:
        round_trip_seconds: the 99th percentile of requests to the slowest broker, from the last
            interval with requests; None: there were none, or it is a consumer, whose fetches wait
            for records.
        disconnects: connections that broke since the process began.
        timeouts: requests that timed out since the process began.
        queued_bytes: of records that were fetched and not consumed, or produced and not delivered.
        throttled_seconds: for which brokers throttled since the process began.
    """

    round_trip_seconds: float | None = None
    disconnects: int = 0
    timeouts: int = 0
    queued_bytes: int = 0
    throttled_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ClientsSeen:
    """Statistics of all clients of this process.

    Args:
        clients: by kind.
        ends: of the partitions that are read.
        rebalances: that the consumer took part in.
    """

    clients: Mapping[str, Clients] = field(default_factory=dict[str, Clients])
    ends: Mapping[TopicPartition, Ends] = field(default_factory=dict[TopicPartition, Ends])
    rebalances: int = 0


class HasStatistics(Protocol):
    """An output whose producer has statistics."""

    @property
    def statistics(self) -> str | None:
        """The newest text; None: there was none yet."""
        ...


class ClientStatistics:
    """Collects the statistics of a process's clients.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._consumer: str | None = None
        self._outputs: WeakSet[HasStatistics] = WeakSet()
        self._counted = {CONSUMER: _Counted(CONSUMER), PRODUCER: _Counted(PRODUCER)}
        self._seen = ClientsSeen()
        self._look_at = 0.0

    def consumer_properties(self) -> dict[str, Any]:
        """Return the properties with which a consumer reports its statistics here."""
        interval_ms = round(INTERVAL_SECONDS * 1000)
        return {"statistics.interval.ms": interval_ms, "stats_cb": self._take}

    def producer_properties(self) -> dict[str, Any]:
        """Return the properties with which a producer makes statistics; see `watch`."""
        return {"statistics.interval.ms": round(PRODUCER_INTERVAL_SECONDS * 1000)}

    def watch(self, output: HasStatistics) -> None:
        """Include an output's producers for as long as the output exists."""
        self._outputs.add(output)

    def look(self) -> ClientsSeen:
        """Return the newest statistics, parsed at most once per interval."""
        if self._clock() < self._look_at:
            return self._seen
        self._look_at = self._clock() + INTERVAL_SECONDS
        consumers = [orjson.loads(self._consumer)] if self._consumer else []
        texts = [output.statistics for output in list(self._outputs)]
        producers = [orjson.loads(text) for text in texts if text]
        self._seen = ClientsSeen(
            {
                kind: self._counted[kind].with_(contents)
                for kind, contents in ((CONSUMER, consumers), (PRODUCER, producers))
                if contents
            },
            {partition: ends for content in consumers for partition, ends in _ends(content)},
            sum(content.get("cgrp", {}).get("rebalance_cnt", 0) for content in consumers),
        )
        return self._seen

    def _take(self, text: str) -> None:
        self._consumer = text


class _Counted:
    """Sums counters over changing clients: a recycled producer begins at 0."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._round_trip_seconds: float | None = None
        self._last: dict[tuple[str, str], int] = {}
        self._totals = {"disconnects": 0, "req_timeouts": 0}

    def with_(self, contents: Iterable[Mapping[str, Any]]) -> Clients:
        """Add the newest statistics of all clients."""
        round_trip_microseconds = queued_bytes = 0
        now = dict[tuple[str, str], int]()
        for content in contents:
            brokers: list[Mapping[str, Any]] = list(content.get("brokers", {}).values())
            for name in self._totals:
                now[content["name"], name] = sum(broker.get(name, 0) for broker in brokers)
            slowest = (broker.get("rtt", {}).get("p99", 0) for broker in brokers)
            round_trip_microseconds = max(round_trip_microseconds, *slowest, 0)
            queued_bytes += content.get("msg_size", 0) + _fetched_bytes(content)
        for key, count in now.items():
            self._totals[key[1]] += max(0, count - self._last.get(key, 0))
        self._last = now
        if self._kind == PRODUCER and round_trip_microseconds > 0:
            self._round_trip_seconds = round_trip_microseconds / 1e6
        return Clients(
            self._round_trip_seconds,
            self._totals["disconnects"],
            self._totals["req_timeouts"],
            queued_bytes,
            announced_seconds(self._kind),
        )


def _ends(content: Mapping[str, Any]) -> Iterable[tuple[TopicPartition, Ends]]:
    """Yield the ends of fetched partitions; -1 is the partition number of "unassigned"."""
    for topic in content.get("topics", {}).values():
        for partition in topic["partitions"].values():
            stable, last = partition.get("ls_offset", -1), partition.get("hi_offset", -1)
            if partition["partition"] >= 0 and stable >= 0 and last >= 0:
                yield TopicPartition(topic["topic"], partition["partition"]), Ends(stable, last)


def _fetched_bytes(content: Mapping[str, Any]) -> int:
    return sum(
        partition.get("fetchq_size", 0)
        for topic in content.get("topics", {}).values()
        for partition in topic["partitions"].values()
    )
