"""The pages `/state`: committed contents of the stores of this worker's tasks.

/state                            the stores, and their partitions on this worker
/state/STORE/KEY                  the rows of a key
/state/STORE?from=&to=&limit=     the rows of a range of keys, partition by partition

Rows are read and encoded one by one while the client receives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any

from eosframework.application.monitoring.http.exchange import Answer, NotServed, Request, Streamed
from eosframework.application.monitoring.stores_here import StoresHere
from eosframework.errors import KeyElsewhere, StoreNotReady
from eosframework.serialization.bounds import STATE_BYTES, STATE_ROWS
from eosframework.state.query import BoundedRows, QueriedStore, as_json, key_of

DEFAULT_LIMIT = 100

_NUMBER = re.compile(r"[0-9]{1,9}")


class StatePages:
    """Answers for `/state`.

    Args:
        application: its name.
        stores: of this worker.
    """

    def __init__(self, application: str, stores: StoresHere) -> None:
        self._application = application
        self._stores = stores

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
                "partitions": self._stores.partitions.get(store.sub_topology),
                "here": [
                    {
                        "partition": partition,
                        "up_to_date": is_up_to_date,
                        "position": self._stores.position(store, partition),
                    }
                    for partition, is_up_to_date in self._stores.here(store).items()
                ],
            }
            for store in self._stores.stores.values()
        ]
        return Answer(HTTPStatus.OK, {"application": self._application, "stores": stores})

    def _get(self, store: QueriedStore, text: str) -> Answer:
        key = key_of(store.store, text)
        self._require_up_to_date(store)
        here = [*self._stores.here(store)]
        try:
            found = self._stores.get(store, key, text)
        except KeyElsewhere as error:
            raise NotServed(
                HTTPStatus.NOT_FOUND, str(error), partition=error.partition, here=here
            ) from error
        if found is None:
            message = f"store {store.name!r} has no key {text!r} in partitions {here}"
            partition = self._stores.partition_of(store, key)
            raise NotServed(HTTPStatus.NOT_FOUND, message, partition=partition, here=here)
        partition, rows = found
        first = next(rows)
        values = ({"value": row.value, "timestamp": row.timestamp} for row in chain([first], rows))
        return _answer(
            {"store": store.name, "key": first.key, "partition": partition},
            BoundedRows(values, STATE_ROWS.value, STATE_BYTES.value),
        )

    def _scan(self, store: QueriedStore, options: Mapping[str, str]) -> Answer:
        limit = _limit(options)
        first = key_of(store.store, options["from"]) if "from" in options else b""
        last = key_of(store.store, options["to"]) if "to" in options else None
        self._require_up_to_date(store)
        rows = (
            {"key": r.key, "value": r.value, "timestamp": r.timestamp, "partition": partition}
            for partition, r in self._stores.scan(store, first, last)
        )
        found = {"store": store.name, "partitions": [*self._stores.here(store)]}
        return _answer(found, BoundedRows(rows, limit, STATE_BYTES.value))

    def _store(self, name: str) -> QueriedStore:
        stores = self._stores.stores
        if name not in stores:
            known = ", ".join(stores) or "none"
            raise NotServed(HTTPStatus.NOT_FOUND, f"there is no store {name!r}; there are {known}")
        return stores[name]

    def _require_up_to_date(self, store: QueriedStore) -> None:
        try:
            self._stores.require_up_to_date(store)
        except StoreNotReady as error:
            waiting = self._stores.waiting(store)
            raise NotServed(
                HTTPStatus.SERVICE_UNAVAILABLE, str(error), restoring=waiting
            ) from error


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
