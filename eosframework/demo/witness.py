"""The witness: a `read_committed` reader that runs all the time, while transactions abort.

It must have seen the same records at the same offsets as a reader at the end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from eosframework.config import KafkaSettings
from eosframework.demo.background import Background
from eosframework.kafka.consumer.range_reader import Ranges, follow, read_ranges
from eosframework.operations.audit.record_digest import digest_of
from eosframework.processing.ports import Message
from eosframework.records import TopicPartition

FINISH_SECONDS = 20.0


@dataclass(slots=True)
class Seen:
    """The records read from one partition: number, last offset, and a fingerprint."""

    records: int = 0
    last_offset: int = -1
    chain: Any = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, topic: str, messages: Sequence[Message]) -> None:
        """Add the next messages of the partition."""
        for message in messages:
            digest = digest_of(
                topic,
                message.key(),
                message.value(),
                message.timestamp()[1],
                message.headers(),
            )
            self.chain.update(message.offset().to_bytes(8, "big") + digest)
        self.records += len(messages)
        self.last_offset = messages[-1].offset()

    @property
    def fingerprint(self) -> tuple[int, int, bytes]:
        """Equal for equal records at equal offsets."""
        return self.records, self.last_offset, self.chain.digest()


class Witness(Background):
    """Reads partitions on its own thread from `start` to `stop`."""

    def __init__(self, settings: KafkaSettings, partitions: Iterable[TopicPartition]) -> None:
        super().__init__("eos-witness", [self._follow])
        self._settings = settings
        self._seen = {partition: Seen() for partition in partitions}

    @property
    def records(self) -> int:
        """Number of records seen so far."""
        return sum(seen.records for seen in self._seen.values())

    def records_by_topic(self) -> dict[str, int]:
        """Return the number of records seen so far, by topic."""
        counts: Counter[str] = Counter()
        for partition, seen in self._seen.items():
            counts[partition.topic] += seen.records
        return dict(counts)

    def differences(self, ends: Ranges) -> list[str]:
        """Read everything again from the start, and stop.

        Args:
            ends: the whole of each partition.

        Returns:
            One line for each partition that differs from the records seen live.
        """
        final = {partition: Seen() for partition in self._seen}
        for partition, messages in read_ranges(self._settings, ends):
            final[partition].add(partition.topic, messages)
        deadline = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < deadline and self._is_behind(final):
            self.stopping.wait(0.05)
        self.stop()
        self.require_running()
        return [
            f"{partition}: {seen.records:,} records up to offset {seen.last_offset} while it was "
            f"written, {final[partition].records:,} up to {final[partition].last_offset} now"
            for partition, seen in self._seen.items()
            if seen.fingerprint != final[partition].fingerprint
        ]

    def _is_behind(self, final: dict[TopicPartition, Seen]) -> bool:
        return self.error is None and any(
            self._seen[partition].last_offset < seen.last_offset
            for partition, seen in final.items()
        )

    def _follow(self) -> None:
        for partition, messages in follow(self._settings, self._seen, self.stopping.is_set):
            self._seen[partition].add(partition.topic, messages)
