"""The pages `/state`: committed contents of the stores of this worker's tasks.

/state                            the stores, and their partitions on this worker
/state/STORE/KEY                  the rows of a key
/state/STORE?from=&to=&limit=     the rows of a range of keys, partition by partition

Rows are read and encoded one by one while the client receives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any

from eosframework.application.monitoring.http.exchange import Answer, NotServed, Request, Streamed
from eosframework.engine.operators.expiry import unexpired
from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.engine.stores.shared_stores import SharedStores, StoresGone
from eosframework.serialization.bounds import STATE_BYTES, STATE_ROWS
from eosframework.state.query import BoundedRows, QueriedStore, Row, as_json, key_of, queried_stores
from eosframework.topology.graph.graph import Graph

DEFAULT_LIMIT = 100

_NUMBER = re.compile(r"[0-9]{1,9}")

PartitionOf = Callable[[bytes, int], int]
"""Returns the partition of an encoded key, given the number of partitions."""


class StatePages:
    """Answers for `/state`.

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
        self._application = graph.application
        self._stores = queried_stores(graph)
        self._shared = shared
        self._partitions = partitions
        self._partition_of = partition_of

    def page(self, request: Request) -> Answer:
        """Answer a path below `/state`."""
        name, *rest = request.path or [""]
        if not name:
            return self._all()
        store = self._store(name)
        # A key may contain slashes.
        key = "/".join(rest)
        return self._get(store, key) if key else self._scan(store, request.options)

    def _all(self) -> Answer:
        stores = [
            {
                "store": store.name,
                "sub_topology": store.sub_topology,
                "partitions": self._partitions.get(store.sub_topology),
                "here": [
                    {
                        "partition": partition,
                        "up_to_date": is_up_to_date,
                        "position": self._position(store, partition),
                    }
                    for partition, is_up_to_date in self._here(store).items()
                ],
            }
            for store in self._stores.values()
        ]
        return Answer(HTTPStatus.OK, {"application": self._application, "stores": stores})

    def _get(self, store: QueriedStore, text: str) -> Answer:
        key = key_of(store.store, text)
        self._require_up_to_date(store)
        for partition in self._here(store):
            rows = self._read(store, partition, key)
            if (first := next(rows, None)) is not None:
                found = {"store": store.name, "key": first.key, "partition": partition}
                values = (
                    {"value": row.value, "timestamp": row.timestamp} for row in chain([first], rows)
                )
                return _answer(found, BoundedRows(values, STATE_ROWS.value, STATE_BYTES.value))
        raise self._absent(store, key, text)

    def _scan(self, store: QueriedStore, options: Mapping[str, str]) -> Answer:
        limit = _limit(options)
        first = key_of(store.store, options["from"]) if "from" in options else b""
        last = key_of(store.store, options["to"]) if "to" in options else None
        self._require_up_to_date(store)
        rows = (
            {"key": r.key, "value": r.value, "timestamp": r.timestamp, "partition": partition}
            for partition, r in self._rows(store, first, last)
        )
        found = {"store": store.name, "partitions": list(self._here(store))}
        return _answer(found, BoundedRows(rows, limit, STATE_BYTES.value))

    def _rows(
        self, store: QueriedStore, first: bytes, last: bytes | None
    ) -> Iterator[tuple[int, Row]]:
        for partition in self._here(store):
            try:
                content = self._content(store, partition)
                for row in store.layout.scan(content, first, last):
                    yield partition, row
            except StoresGone:
                continue

    def _read(self, store: QueriedStore, partition: int, key: bytes) -> Iterator[Row]:
        try:
            yield from store.layout.get(self._content(store, partition), key)
        except StoresGone:
            return

    def _content(self, store: QueriedStore, partition: int) -> CommittedStore:
        content = self._shared.content(store.sub_topology, partition, store.name)
        time = self._shared.stream_time(store.sub_topology, partition)
        return unexpired(store.store, content, time)

    def _position(self, store: QueriedStore, partition: int) -> int | None:
        try:
            return self._shared.position(store.sub_topology, partition, store.name)
        except StoresGone:
            return None

    def _here(self, store: QueriedStore) -> dict[int, bool]:
        return self._shared.partitions(store.sub_topology)

    def _store(self, name: str) -> QueriedStore:
        if name not in self._stores:
            known = ", ".join(self._stores) or "none"
            raise NotServed(HTTPStatus.NOT_FOUND, f"there is no store {name!r}; there are {known}")
        return self._stores[name]

    def _require_up_to_date(self, store: QueriedStore) -> None:
        waiting = [p for p, is_up_to_date in self._here(store).items() if not is_up_to_date]
        if waiting:
            raise NotServed(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"partitions {waiting} of store {store.name!r} are brought up to date; ask again",
                restoring=waiting,
            )

    def _absent(self, store: QueriedStore, key: bytes, text: str) -> NotServed:
        here = list(self._here(store))
        count = self._partitions.get(store.sub_topology, 0)
        partition = self._partition_of(key, count) if count else None
        message = f"store {store.name!r} has no key {text!r} in partitions {here}"
        if partition not in here:
            message += (
                f", those of this worker; if it was placed as Kafka's clients do it is in "
                f"partition {partition}: ask the worker that has it"
            )
        return NotServed(HTTPStatus.NOT_FOUND, message, partition=partition, here=here)


def _answer(found: Mapping[str, Any], rows: BoundedRows[Any]) -> Answer:
    """Return the answer with `found`, the rows as a list, and whether there are more."""
    parts = _parts(found, rows)
    # With the first row, so that an error of the store has its own status.
    return Answer(HTTPStatus.OK, Streamed(chain([next(parts)], parts)))


def _parts(found: Mapping[str, Any], rows: BoundedRows[Any]) -> Iterator[bytes]:
    before = as_json(found)[:-1] + b',"found":['
    for _, encoded in rows:
        yield before + encoded
        before = b","
    is_empty = before != b","
    end = b'],"more":true}\n' if rows.more else b'],"more":false}\n'
    yield before + end if is_empty else end


def _limit(options: Mapping[str, Any]) -> int:
    text = options.get("limit", str(DEFAULT_LIMIT))
    # `int` raises for more than 4,300 digits, and accepts digits of other scripts.
    if _NUMBER.fullmatch(text) is None or not 0 < int(text) <= STATE_ROWS.value:
        raise NotServed(
            HTTPStatus.BAD_REQUEST,
            f"limit={text!r:.40} cannot be; expected a number from 1 to {STATE_ROWS.value}",
        )
    return int(text)
