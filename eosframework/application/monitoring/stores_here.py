"""Committed contents of the stores of this worker's tasks, read by any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from eosframework.engine.operators.expiry import unexpired
from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.engine.stores.shared_stores import SharedStores, StoresGone
from eosframework.engine.stores.state_ports import Reached
from eosframework.errors import KeyElsewhere, StoreNotReady
from eosframework.state.layout import Row
from eosframework.state.query import QueriedStore, queried_stores
from eosframework.topology.graph.graph import Graph

PartitionOf = Callable[[bytes, int], int]
"""Returns the partition of an encoded key, given the number of partitions."""


@dataclass(frozen=True, slots=True)
class KeyHere:
    """A key in a partition of this worker.

    Args:
        partition: that was read.
        position: changelog position of the store, at least; None: it is empty.
        reached: last transaction of the task that the store has, at least; None: unknown.
        rows: of the key; None: there are none. Reading them raises StoreNotReady if the partition
            moves meanwhile.
    """

    partition: int
    position: int | None
    reached: Reached | None
    rows: Iterator[Row] | None


def _all(first: Row, others: Iterator[Row]) -> Iterator[Row]:
    yield first
    try:
        yield from others
    except StoresGone as error:
        raise StoreNotReady("the partition moves while it is read; ask again") from error


class StoresHere:
    """The stores of this worker's tasks.

    Args:
        graph: of the application.
        shared: the stores of this worker.
        partitions: number of tasks of each sub-topology.
        partition_of: Kafka's default partitioner.
    """

    def __init__(
        self,
        graph: Graph,
        shared: SharedStores,
        partitions: Mapping[str, int],
        partition_of: PartitionOf,
    ) -> None:
        self.stores = queried_stores(graph)
        self.partitions = partitions
        self._shared = shared
        self._partition_of = partition_of

    def here(self, store: QueriedStore) -> dict[int, bool]:
        """Return the partitions on this worker, and whether each is up to date."""
        return self._shared.partitions(store.sub_topology)

    def position(self, store: QueriedStore, partition: int) -> int | None:
        """Return the changelog position of a store; None: it is empty, or not here any more."""
        try:
            return self._shared.position(store.sub_topology, partition, store.name)
        except StoresGone:
            return None

    def require_up_to_date(self, store: QueriedStore) -> None:
        """Check that all partitions on this worker can be read.

        Raises:
            StoreNotReady: some are brought up to date.
        """
        if waiting := self.waiting(store):
            raise StoreNotReady(
                f"partitions {waiting} of store {store.name!r} are brought up to date; ask again"
            )

    def waiting(self, store: QueriedStore) -> list[int]:
        """Return the partitions on this worker that cannot be read yet."""
        return [p for p, is_up_to_date in self.here(store).items() if not is_up_to_date]

    def get(self, store: QueriedStore, key: bytes, shown: object) -> KeyHere:
        """Return the rows of a key, or that its partition has none.

        Args:
            store: to read.
            key: encoded.
            shown: the key for the message.

        Raises:
            KeyElsewhere: it is not here, and its partition is another worker's, if it was placed
                as Kafka's clients do it.
        """
        read: dict[int, KeyHere] = {}
        for partition, is_up_to_date in self.here(store).items():
            with suppress(StoresGone):
                if is_up_to_date:
                    read[partition] = self._read(store, partition, key)
                    if read[partition].rows is not None:
                        return read[partition]
        partition = self.partition_of(store, key)
        # Only a partition that was read has no such key: one may come or go meanwhile.
        if partition is not None and partition in read:
            return read[partition]
        raise KeyElsewhere(
            f"store {store.name!r} has no key {shown!r} in partitions {[*read]}, those of this "
            f"worker; if it was placed as Kafka's clients do it is in partition {partition}: ask "
            f"the worker that has it",
            partition=partition,
        )

    def partition_of(self, store: QueriedStore, key: bytes) -> int | None:
        """Return the partition where Kafka's clients place a key; None: the number is unknown."""
        count = self.partitions.get(store.sub_topology, 0)
        return self._partition_of(key, count) if count else None

    def scan(
        self, store: QueriedStore, first: bytes, last: bytes | None
    ) -> Iterator[tuple[int, Row]]:
        """Yield the rows of keys with `first <= key < last`, each with its partition."""
        for partition in self.here(store):
            try:
                content = self._content(store, partition)
                for row in store.layout.scan(content, first, last):
                    yield partition, row
            except StoresGone:
                continue

    def _read(self, store: QueriedStore, partition: int, key: bytes) -> KeyHere:
        # First the positions: the rows may be of a later transaction, and never of an earlier one.
        reached = self._shared.reached(store.sub_topology, partition)
        position = self._shared.position(store.sub_topology, partition, store.name)
        rows = store.layout.get(self._content(store, partition), key)
        first = next(rows, None)
        return KeyHere(partition, position, reached, None if first is None else _all(first, rows))

    def _content(self, store: QueriedStore, partition: int) -> CommittedStore:
        content = self._shared.content(store.sub_topology, partition, store.name)
        time = self._shared.stream_time(store.sub_topology, partition)
        return unexpired(store.store, content, time)
