"""Committed contents of stores, read from files on this machine or from changelogs.

Reading changes no files and does not affect a worker that has the store open.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from eosframework.config import Settings, StateBackendKind
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.operators.expiry import unexpired
from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.partitioner import partition_of
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.process.steps import OnProgress, ignore_progress
from eosframework.records import TopicPartition
from eosframework.state.layout import Row
from eosframework.state.manifest import StoreLabel
from eosframework.state.memory import MemoryStore
from eosframework.state.query import BoundedRows, QueriedStore, key_of
from eosframework.state.store_directories import (
    FoundStores,
    application_directory,
    has_database,
    list_stores,
)
from eosframework.state.store_reader import ReadOnlyStores, read_only


@dataclass(frozen=True, slots=True)
class Content:
    """The contents of one partition of a store.

    Args:
        position: the first offset of the changelog that is not included.
    """

    partition: int
    store: CommittedStore
    position: int


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Size and position of one partition of a store.

    Args:
        keys: estimated; windows and indexes count as keys.
        written_at: seconds since the epoch.
        held: locked by a process, probably the task's worker.
        is_copy: a standby copy, whose task runs elsewhere.
    """

    store: str
    partition: int
    keys: int
    disk_bytes: int
    position: int | None
    written_at: float | None
    held: bool
    is_copy: bool
    directory: str


@dataclass(frozen=True, slots=True)
class FoundKey:
    """The rows of one key.

    Args:
        partition: that has the key.
        position: the first offset of the changelog that is not included.
        rows: one, or one for each window.
        more: there are further rows.
    """

    store: QueriedStore
    partition: int
    position: int
    rows: Sequence[Row]
    more: bool

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "store": self.store.name,
            "key": self.rows[0].key,
            "partition": self.partition,
            "position": self.position,
            "found": [{"value": row.value, "timestamp": row.timestamp} for row in self.rows],
            "more": self.more,
        }


@dataclass(frozen=True, slots=True)
class FoundRange:
    """The rows of a range of keys.

    Args:
        partitions: that were read.
        rows: with their partitions.
        more: there are further rows.
    """

    store: QueriedStore
    partitions: Sequence[int]
    rows: Sequence[tuple[int, Row]]
    more: bool

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        found = [
            {"key": r.key, "value": r.value, "timestamp": r.timestamp, "partition": partition}
            for partition, r in self.rows
        ]
        return {
            "store": self.store.name,
            "partitions": list(self.partitions),
            "found": found,
            "more": self.more,
        }


class Source(Protocol):
    """A source of the contents of stores."""

    def count(self, store: QueriedStore) -> int:
        """Return the number of partitions, readable here or not."""
        ...

    def partitions(self, store: QueriedStore) -> list[int]:
        """Return the partitions that can be read."""
        ...

    def copies(self, store: QueriedStore) -> list[int]:
        """Return the partitions that are standby copies, which may lack the last changes."""
        ...

    def contents(
        self, store: QueriedStore, partitions: Sequence[int], key: bytes | None = None
    ) -> Generator[Content]:
        """Yield partitions one after the other; each can be read until the next one is yielded.

        Args:
            store: of the application.
            partitions: to read, in this order.
            key: the only key that will be read; None: any key may be.
        """
        ...


class StoreFiles:
    """The stores of an application on this machine.

    Args:
        application: name of the application.
        settings: with the stores' directory.

    Raises:
        ConfigurationError: stores are configured to be in memory.
    """

    def __init__(self, application: str, settings: Settings) -> None:
        if settings.state.backend is StateBackendKind.MEMORY:
            raise ConfigurationError(
                "state.backend=memory keeps stores in the worker's process alone; ask the worker "
                "(worker.http_address), or read the changelog: --from-changelog"
            )
        self._application = application
        self._directory = application_directory(settings.state, application)
        # If there are several directories of a task, prefer locked ones that are not copies, then
        # the one written last.
        self._places: dict[str, FoundStores] = {}
        places = [place for place in list_stores(self._directory) if has_database(place.path)]
        for place in sorted(places, key=lambda place: place.is_copy or not place.held):
            self._places.setdefault(place.task, place)

    def partitions(self, store: QueriedStore) -> list[int]:
        """Return the partitions that are on this machine.

        Raises:
            ConfigurationError: there are none.
        """
        here = self._here(store)
        if not here:
            raise ConfigurationError(
                f"this machine has no partition of store {store.name!r} in {self._directory}; run "
                f"this where a worker of {self._application!r} runs, set state.directory as there, "
                f"or read the changelog: --from-changelog"
            )
        return here

    def copies(self, store: QueriedStore) -> list[int]:
        """Return the partitions whose tasks run elsewhere."""
        return [p for p in self._here(store) if self._place(store, p).is_copy]

    def count(self, store: QueriedStore) -> int:
        """Return the number of partitions, on this machine or not."""
        here = self.partitions(store)
        with read_only(self._place(store, here[0]).path) as task:
            label = task.label
        return here[-1] + 1 if label is None else label.partitions

    def contents(
        self, store: QueriedStore, partitions: Sequence[int], key: bytes | None = None
    ) -> Generator[Content]:
        """Yield partitions; empty ones and those of another layout are skipped."""
        for partition in partitions:
            with read_only(self._place(store, partition).path) as task:
                label = _label(task, store.name)
                if label is not None and label.schema_version == LAYOUT:
                    content = unexpired(store.store, task.store(store.name), task.stream_time)
                    yield Content(partition, content, label.position)

    def stats(self, stores: Sequence[QueriedStore]) -> Iterator[PartitionStats]:
        """Yield the size and position of each partition of these stores on this machine."""
        for store in stores:
            for partition in self._here(store):
                place = self._place(store, partition)
                with read_only(place.path) as task:
                    label = _label(task, store.name)
                    sizes = {size.store: size for size in task.stats()}
                if (size := sizes.get(store.name)) is not None:
                    yield PartitionStats(
                        store=store.name,
                        partition=partition,
                        keys=size.keys,
                        disk_bytes=size.disk_bytes,
                        position=None if label is None else label.position,
                        written_at=None if label is None else label.written_at,
                        held=place.held,
                        is_copy=place.is_copy,
                        directory=str(place.path),
                    )

    def _here(self, store: QueriedStore) -> list[int]:
        prefix = f"{store.sub_topology}-"
        names = [task.removeprefix(prefix) for task in self._places if task.startswith(prefix)]
        return sorted(int(name) for name in names if name.isdigit())

    def _place(self, store: QueriedStore, partition: int) -> FoundStores:
        return self._places[f"{store.sub_topology}-{partition}"]


class ChangelogStores:
    """The stores of an application, read from their changelogs one partition at a time.

    Args:
        settings: of the cluster.
        most_bytes: of the entries of a partition, which are read into memory.
        on_progress: see `OnProgress`.
    """

    def __init__(
        self,
        settings: Settings,
        most_bytes: int = sys.maxsize,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        self._settings = settings.kafka
        self._admin = ClusterAdmin(settings.kafka)
        self._most_bytes = most_bytes
        self._on_progress = on_progress

    def count(self, store: QueriedStore) -> int:
        """Return the number of partitions.

        Raises:
            ConfigurationError: there is no changelog.
        """
        topic = store.store.changelog
        facts = self._admin.describe_topics([topic])[topic]
        if not facts.exists:
            raise ConfigurationError(
                f"changelog topic {topic!r} of store {store.name!r} does not exist at "
                f"{self._settings.bootstrap_servers}; create it with `eosframework apply` and run "
                f"a worker, or set kafka.bootstrap_servers"
            )
        return facts.partitions

    def partitions(self, store: QueriedStore) -> list[int]:
        """Return all partitions."""
        return list(range(self.count(store)))

    def copies(self, store: QueriedStore) -> list[int]:
        """Return an empty list: a changelog is never a copy."""
        return []

    def contents(
        self, store: QueriedStore, partitions: Sequence[int], key: bytes | None = None
    ) -> Generator[Content]:
        """Yield partitions; given a key, only entries whose key contains its bytes are kept.

        Raises:
            ConfigurationError: a partition has more bytes than may be held.
        """
        places = [TopicPartition(store.store.changelog, partition) for partition in partitions]
        of_all = self._admin.log_bounds(places)
        total, done = sum(end - start for start, end in of_all.values()), 0
        for place, bounds in of_all.items():
            content, time, held = MemoryStore(), 0, 0
            for _, messages in read_ranges(self._settings, {place: bounds}):
                entries = {message.key() or b"": message.value() for message in messages}
                entries = {k: v for k, v in entries.items() if key is None or key in k}
                held += sum(
                    len(value or b"") - len(content.get(name) or b"")
                    for name, value in entries.items()
                )
                content.apply(list(entries.items()))
                if held > self._most_bytes:
                    raise ConfigurationError(
                        f"{place} has more than {self._most_bytes:,} bytes of entries, which are "
                        f"not read here; run `eosframework state scan APP {store.name} "
                        f"--from-changelog`, or ask the workers"
                    )
                time = max(time, *(message.timestamp()[1] for message in messages))
                read = messages[-1].offset() + 1 - bounds[0]
                self._on_progress(store.store.changelog, done + read, total)
            done += bounds[1] - bounds[0]
            yield Content(place.partition, unexpired(store.store, content, time), bounds[1])


def look_up(
    source: Source, store: QueriedStore, key: str, most_bytes: int = sys.maxsize
) -> FoundKey:
    """Return the rows of a key.

    The partition of Kafka's default partitioner is read first; producers may use another one.

    Args:
        source: of the contents.
        store: of the application.
        key: as text; see `key_of`.
        most_bytes: of the rows; see `BoundedRows`.

    Raises:
        ConfigurationError: no partition has the key, or it cannot be encoded.
    """
    encoded = key_of(store.store, key)
    likely = partition_of(encoded, source.count(store))
    order = sorted(source.partitions(store), key=lambda partition: partition != likely)
    with closing(source.contents(store, order, encoded)) as contents:
        for content in contents:
            found = BoundedRows(store.layout.get(content.store, encoded), sys.maxsize, most_bytes)
            if rows := [row for row, _ in found]:
                return FoundKey(store, content.partition, content.position, rows, found.more)
    raise ConfigurationError(_absent(source, store, key, likely))


def scan(
    source: Source,
    store: QueriedStore,
    first: str | None,
    last: str | None,
    limit: int,
    most_bytes: int = sys.maxsize,
) -> FoundRange:
    """Return the rows of a range of keys, partition by partition.

    Args:
        source: of the contents.
        store: of the application.
        first: first key as text; None: the first one.
        last: key to stop before; None: no end.
        limit: the most rows.
        most_bytes: of the rows; see `BoundedRows`.

    Raises:
        ConfigurationError: a key cannot be encoded, or no partition can be read.
    """
    bounds = (
        b"" if first is None else key_of(store.store, first),
        None if last is None else key_of(store.store, last),
    )
    partitions = source.partitions(store)
    with closing(source.contents(store, partitions)) as contents:
        found = BoundedRows(_rows(store, contents, *bounds), limit, most_bytes)
        rows = [row for row, _ in found]
    return FoundRange(store, partitions, rows, found.more)


def _rows(
    store: QueriedStore, contents: Iterator[Content], first: bytes, last: bytes | None
) -> Iterator[tuple[int, Row]]:
    for content in contents:
        for row in store.layout.scan(content.store, first, last):
            yield content.partition, row


def _absent(source: Source, store: QueriedStore, key: str, likely: int) -> str:
    here, count = source.partitions(store), source.count(store)
    listed = ", ".join(map(str, here))
    message = f"store {store.name!r} has no key {key!r} in partitions {listed} of {count}"
    if likely in here:
        return message
    return (
        f"{message}, which this machine has; Kafka's default partitioner places it in partition "
        f"{likely}: give --from-changelog, or the HTTP address of any worker with --ask"
    )


def _label(task: ReadOnlyStores, store: str) -> StoreLabel | None:
    return task.label_of(store) if store in task.names else None
