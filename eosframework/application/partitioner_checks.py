"""Check that producers of co-partitioned topics use the same partitioner, by sampling keys.

A join finds records with the same key in the same partition. A topic whose producers partition keys
differently joins with unrelated records, without an error.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

import structlog

from eosframework.config import ForeignPartitioner, KafkaSettings, Settings
from eosframework.errors import EosError, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.partitioner import partition_of
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.records import partitions_of
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.walk import copartitioned_topics

PARTITIONS = 16
RECORDS = 100
"""Sample size of each partition: its last records, which the current producers wrote."""

SECONDS = 5.0
MEGABYTES = 16
"""A sample ends early at this size."""

FEWEST_KEYS = 5
"""Fewer different keys decide nothing: all of 5 that CRC32 placed match with a probability of
1/partitions to the power of 5."""

PLACED_BY_HAND = 0.1
"""Tolerated fraction of keys in other partitions, such as markers that are written to every
partition."""


@dataclass(frozen=True, slots=True)
class KeySample:
    """Different keys of a topic, each with a partition that it was found in.

    Args:
        partitions: of the topic.
        keys: encoded; neither missing nor empty ones, which producers place at random.
    """

    topic: str
    partitions: int
    keys: frozenset[tuple[bytes, int]]

    @property
    def decides(self) -> bool:
        """True if the sample is large enough, and the topic has several partitions."""
        return self.partitions > 1 and len(self.keys) >= FEWEST_KEYS

    def elsewhere(self, place: Callable[[bytes, int], int]) -> list[tuple[bytes, int]]:
        """Return the keys that are not where a partitioner puts them, sorted."""
        return sorted(each for each in self.keys if place(each[0], self.partitions) != each[1])

    def is_explained_by(self, place: Callable[[bytes, int], int]) -> bool:
        """Return whether a partitioner put nearly all of the keys where they are."""
        return len(self.elsewhere(place)) <= PLACED_BY_HAND * len(self.keys)


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A topic with keys that murmur2 would put elsewhere.

    Args:
        sample: of the topic.
        others: topics whose records meet its own in a store.
        is_foreign: too many keys for keys that were placed by hand.
    """

    sample: KeySample
    others: tuple[str, ...]
    is_foreign: bool

    @property
    def found(self) -> str:
        """Description of the mismatch, with an example."""
        sample, wrong = self.sample, self.sample.elsewhere(partition_of)
        key, partition = wrong[0]
        looks = " (CRC32 does: librdkafka's default)" if sample.is_explained_by(_crc32) else ""
        return (
            f"murmur2 does not explain the partition of {len(wrong)} of {len(sample.keys)} sampled "
            f"keys{looks}; for example key {_shown(key)} is in partition {partition}, and murmur2 "
            f"gives {partition_of(key, sample.partitions)}"
        )

    @property
    def fix(self) -> str:
        """Instructions to fix it."""
        topic = self.sample.topic
        return (
            f"set partitioner=murmur2_random in the producers of {topic} (Java's default is "
            f"murmur2), or put group_by by the record's own key in front of the step that "
            f"remembers: then the keys of {topic} go through a repartition topic. If its keys are "
            f"placed on purpose, and alike in {', '.join(self.others)}: "
            f"worker.foreign_partitioner=warn"
        )


def sample_keys(
    graph: Graph, settings: KafkaSettings, admin: ClusterAdmin, partitions: Mapping[str, int]
) -> dict[str, KeySample]:
    """Return a key sample of each external topic that is co-partitioned with another topic.

    Args:
        graph: of the application.
        settings: how to reach the cluster.
        admin: reads offsets of the same cluster.
        partitions: of each topic that exists.

    Raises:
        ClusterUnreachable: no broker answered in time.
        PositionLost: retention removed records meanwhile.
        RunError: a topic cannot be read.
    """
    topics = sorted(
        topic
        for topic in {topic for topics in _meeting(graph) for topic in topics} - _internal(graph)
        if partitions.get(topic, 0) > 1
    )
    if not topics:
        return {}
    wanted = partitions_of({topic: min(partitions[topic], PARTITIONS) for topic in topics})
    bounds = admin.log_bounds(wanted)
    ranges = {p: (max(first, end - RECORDS), end) for p, (first, end) in bounds.items()}
    keys: dict[str, set[tuple[bytes, int]]] = {topic: set() for topic in topics}
    deadline, left = time.monotonic() + SECONDS, MEGABYTES * 2**20
    with closing(read_ranges(settings, ranges)) as batches:
        for (topic, number), messages in batches:
            found = ((message.key(), number) for message in messages)
            keys[topic].update((key, at) for key, at in found if key)
            left -= sum(len(m.value() or b"") for m in messages)
            if left < 0 or time.monotonic() > deadline:
                break
    return {t: KeySample(t, partitions[t], frozenset(found)) for t, found in keys.items()}


def misplaced_keys(graph: Graph, samples: Mapping[str, KeySample]) -> list[Misplaced]:
    """Return the topics whose keys do not meet equal keys of other topics; pure.

    Topics that all use CRC32 match each other, unless one of them is a repartition topic of the
    application, which uses murmur2.
    """
    own = _internal(graph)
    found: dict[str, Misplaced] = {}
    for topics in _meeting(graph):
        known = [samples[topic] for topic in topics if topic in samples]
        deciding = [sample for sample in known if sample.decides]
        alike = len(deciding) == len(topics) and not topics & own
        if alike and all(sample.is_explained_by(_crc32) for sample in deciding):
            continue
        for sample in deciding:
            if sample.elsewhere(partition_of):
                others = tuple(sorted(topics - {sample.topic}))
                is_foreign = not sample.is_explained_by(partition_of)
                found.setdefault(sample.topic, Misplaced(sample, others, is_foreign))
    return [found[topic] for topic in sorted(found)]


def require_fitting_partitioners(
    graph: Graph, settings: Settings, admin: ClusterAdmin, partitions: Mapping[str, int]
) -> None:
    """Refuse, or warn, if keys of co-partitioned topics are not where murmur2 puts them.

    A sample that cannot be taken decides nothing.

    Raises:
        StartRefused: names the topic, a key, and what to do.
    """
    events = structlog.get_logger("eosframework.worker")
    try:
        samples = sample_keys(graph, settings.kafka, admin, partitions)
    except EosError as error:
        events.warning("keys_not_sampled", error=str(error))
        return
    refuses = settings.worker.foreign_partitioner is ForeignPartitioner.REFUSE
    for one in misplaced_keys(graph, samples):
        if one.is_foreign and refuses:
            raise StartRefused(
                f"keys of topic {one.sample.topic!r} and of {', '.join(one.others)} meet in a "
                f"store, which is divided by partition, and {one.found}. What has the same key "
                f"would not find each other, without an error. To go on, {one.fix}"
            )
        events.warning("keys_misplaced", topic=one.sample.topic, others=one.others, found=one.found)


def _meeting(graph: Graph) -> Iterable[frozenset[str]]:
    return [topics for part in graph.sub_topologies for topics in copartitioned_topics(part)]


def _internal(graph: Graph) -> frozenset[str]:
    return graph.repartition_topics


def _crc32(key: bytes, partitions: int) -> int:
    """Return the partition that librdkafka's `consistent` partitioner chooses."""
    return zlib.crc32(key) % partitions


def _shown(key: bytes) -> str:
    """Return a key for a message: as text if it is printable."""
    text = key[:40].decode("utf-8", "replace")
    return repr(text if text.isprintable() else key[:40]) + ("…" if len(key) > 40 else "")
