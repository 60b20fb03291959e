"""What a store held at its last commits: as this machine has it, or as its changelog tells.

Reading disturbs nobody: neither the worker that has the store open, nor the files.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from eosframework.config import Settings, StateBackendKind
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.partitioner import partition_of
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.operators.entries import LAYOUT
from eosframework.operators.expiry import unexpired
from eosframework.operators.operator_ports import CommittedStore
from eosframework.records import TopicPartition
from eosframework.state.labels import StoreLabel
from eosframework.state.memory import MemoryStore
from eosframework.state.places import Found, application_directory, found, has_data
from eosframework.state.query.layouts import Row
from eosframework.state.query.stores import QueriedStore
from eosframework.state.store_reader import StoredTask, read_only


@dataclass(frozen=True, slots=True)
class Content:
    """One partition of a store.

    Args:
        position: next offset of the changelog that it does not have.
    """

    partition: int
    store: CommittedStore
    position: int


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """How large one partition of a store is, and how far.

    Args:
        keys: estimated; windows and indexes count as keys.
        written_at: seconds since the epoch.
        held: by a process, probably the task's worker.
        is_copy: the task runs elsewhere, and this follows its changelog.
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


class Source(Protocol):
    """Where stores are read."""

    def count(self, store: QueriedStore) -> int:
        """Return how many partitions there are, here and elsewhere."""
        ...

    def partitions(self, store: QueriedStore) -> list[int]:
        """Return the partitions that can be read."""
        ...

    def copies(self, store: QueriedStore) -> list[int]:
        """Return those of which there is a copy only, which may lack the last changes."""
        ...

    def contents(
        self, store: QueriedStore, partitions: Sequence[int], key: bytes | None = None
    ) -> Generator[Content]:
        """Yield partitions one after the other; each can be read until the next one.

        Args:
            store: of the application.
            partitions: which, in order.
            key: nothing else will be asked for; None: everything may be.
        """
        ...


class OnMachine:
    """The stores of an application on this machine.

    Args:
        application: whose they are.
        settings: where they are.

    Raises:
        ConfigurationError: they are in no files.
    """

    def __init__(self, application: str, settings: Settings) -> None:
        if settings.state.backend is StateBackendKind.MEMORY:
            raise ConfigurationError(
                "state.backend=memory keeps stores in the worker's process alone; ask the worker "
                "(worker.http_address), or read the changelog: --from-changelog"
            )
        self._application = application
        self._directory = application_directory(settings.state, application)
        # Of several that a task has here the one written last comes first; what a task of this
        # machine has in use comes before copies of it.
        self._places: dict[str, Found] = {}
        places = [place for place in found(self._directory) if has_data(place.path)]
        for place in sorted(places, key=lambda place: place.is_copy or not place.held):
            self._places.setdefault(place.task, place)

    def partitions(self, store: QueriedStore) -> list[int]:
        """Return the partitions of which there is something here.

        Raises:
            ConfigurationError: there is nothing at all.
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
        """Return how many partitions there are, here and elsewhere."""
        here = self.partitions(store)
        with read_only(self._place(store, here[0]).path) as task:
            label = task.label
        return here[-1] + 1 if label is None else label.partitions

    def contents(
        self, store: QueriedStore, partitions: Sequence[int], key: bytes | None = None
    ) -> Generator[Content]:
        """Yield partitions; one that is not begun, or in another layout, is passed over."""
        for partition in partitions:
            with read_only(self._place(store, partition).path) as task:
                label = _label(task, store.name)
                if label is not None and label.schema_version == LAYOUT:
                    content = unexpired(store.store, task.store(store.name), task.stream_time)
                    yield Content(partition, content, label.position)

    def stats(self, stores: Sequence[QueriedStore]) -> Iterator[PartitionStats]:
        """Yield how large each partition of these stores is that is here."""
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

    def _place(self, store: QueriedStore, partition: int) -> Found:
        return self._places[f"{store.sub_topology}-{partition}"]


class InChangelog:
    """The stores of an application as their changelogs have them; one partition is in memory.

    Args:
        settings: how to reach the cluster.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.kafka
        self._admin = ClusterAdmin(settings.kafka)

    def count(self, store: QueriedStore) -> int:
        """Return how many partitions there are.

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
        """Return nothing: the changelog is what copies are made from."""
        return []

    def contents(
        self, store: QueriedStore, partitions: Sequence[int], key: bytes | None = None
    ) -> Generator[Content]:
        """Yield partitions; all entries of an operator for a key have its bytes in their keys."""
        places = [TopicPartition(store.store.changelog, partition) for partition in partitions]
        for place, bounds in self._admin.log_bounds(places).items():
            content, time = MemoryStore(), 0
            for _, messages in read_ranges(self._settings, {place: bounds}):
                entries = [(message.key() or b"", message.value()) for message in messages]
                content.apply([e for e in entries if key is None or key in e[0]])
                time = max(time, *(message.timestamp()[1] for message in messages))
            yield Content(place.partition, unexpired(store.store, content, time), bounds[1])


def find(source: Source, store: QueriedStore, key: bytes) -> tuple[Content, list[Row]] | None:
    """Return the partition that has a key, and what there is for it; None: none of them has.

    The one is looked at first where Kafka's own clients put the key; its producers may have put it
    elsewhere.
    """
    likely = partition_of(key, source.count(store))
    order = sorted(source.partitions(store), key=lambda partition: partition != likely)
    with closing(source.contents(store, order, key)) as contents:
        for content in contents:
            if rows := store.layout.get(content.store, key):
                return content, rows
    return None


def _label(task: StoredTask, store: str) -> StoreLabel | None:
    return task.made_for(store) if store in task.names else None
