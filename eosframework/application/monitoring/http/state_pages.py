"""The pages `/state`: committed contents of stores.

/state                            the stores, and their partitions on this worker
/state/STORE/KEY?at=              the rows of a key, whichever worker has its partition
/state/STORE?from=&to=&limit=     the rows of a range of keys in the partitions of this worker

A key that another worker has is asked for there (`at=owner`), or the client is sent there
(`redirect`). A query with `at=here` is never forwarded: so is each that a worker forwards or
redirects, and there are no loops. While a partition moves the answer is 503.

Rows are read and encoded one by one while the client receives them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from enum import StrEnum
from http import HTTPStatus
from itertools import chain
from typing import Any

from eosframework.application.monitoring.http import peers
from eosframework.application.monitoring.http.exchange import (
    Answer,
    NotServed,
    Request,
    Streamed,
    Text,
)
from eosframework.application.monitoring.owners import Owner, Owners
from eosframework.application.monitoring.stores_here import KeyHere, StoresHere
from eosframework.errors import ClusterUnreachable, KeyElsewhere, StoreNotReady, UserError
from eosframework.serialization.bounds import FORWARDED, STATE_BYTES, STATE_ROWS
from eosframework.state.layout import Row
from eosframework.state.query import BoundedRows, QueriedStore, as_json, key_of

DEFAULT_LIMIT = 100

_NUMBER = re.compile(r"[0-9]{1,9}")


class At(StrEnum):
    """Ways to answer for a key whose partition another worker has."""

    OWNER = "owner"
    REDIRECT = "redirect"
    HERE = "here"


class StatePages:
    """Answers for `/state`.

    Args:
        application: its name.
        stores: of this worker.
        owners: of all tasks.
    """

    def __init__(self, application: str, stores: StoresHere, owners: Owners) -> None:
        self._application = application
        self._stores = stores
        self._owners = owners
        self._forwards = threading.BoundedSemaphore(FORWARDED.value)

    def page(self, request: Request) -> Answer:
        """Answer a path below `/state`."""
        try:
            answer = self._page(request)
        except NotServed as error:
            answer = error.answer
        except (StoreNotReady, ClusterUnreachable) as error:
            answer = NotServed(HTTPStatus.SERVICE_UNAVAILABLE, str(error)).answer
        except UserError as error:
            answer = NotServed(HTTPStatus.BAD_REQUEST, str(error)).answer
        own = {peers.APPLICATION: self._application, peers.INSTANCE: self._owners.instance}
        return replace(answer, headers={**own, **answer.headers})

    def _page(self, request: Request) -> Answer:
        name, *rest = request.path or [""]
        if not name:
            return self._all()
        store = self._store(name)
        # A key may contain slashes.
        key = "/".join(rest)
        return self._get(store, key, request) if key else self._scan(store, request.options)

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

    def _get(self, store: QueriedStore, text: str, request: Request) -> Answer:
        at = _at(request.options)
        key = key_of(store.store, text)
        partition = self._stores.partition_of(store, key)
        if partition in self._stores.here(store):
            self._require_up_to_date(store)
        member_id = self._owners.member_id()
        try:
            found = self._stores.get(store, key, text)
        except KeyElsewhere as error:
            if error.partition is None:
                raise NotServed(HTTPStatus.NOT_FOUND, str(error)) from error
            return self._elsewhere(store, text, error.partition, at, request)
        self._owners.confirm(member_id, store.sub_topology, [found.partition])
        return self._found(store, text, found)

    def _found(self, store: QueriedStore, text: str, found: KeyHere) -> Answer:
        of = {
            "partition": found.partition,
            "position": found.position,
            "reached": found.reached and asdict(found.reached),
        }
        if found.rows is None:
            here = [*self._stores.here(store)]
            message = f"store {store.name!r} has no key {text!r} in partitions {here}"
            raise NotServed(HTTPStatus.NOT_FOUND, message, **of, here=here)
        first = next(found.rows)
        rows = chain([first], found.rows)
        values = ({"value": row.value, "timestamp": row.timestamp} for row in rows)
        return _answer(
            {"store": store.name, "key": first.key, **of},
            BoundedRows(values, STATE_ROWS.value, STATE_BYTES.value),
        )

    def _elsewhere(
        self, store: QueriedStore, text: str, partition: int, at: At, request: Request
    ) -> Answer:
        """Answer for a key whose partition is not here."""
        owner = self._owner(store, partition)
        if at is At.HERE:
            raise NotServed(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"partition {partition} of store {store.name!r}, where Kafka's clients place key "
                f"{text!r}, is worker {owner.instance!r}'s",
                partition=partition,
                here=[*self._stores.here(store)],
                owner=asdict(owner),
            )
        path = peers.key_path(store.name, text)
        if at is At.REDIRECT:
            url = f"http://{_announced(owner)}{path}"
            told = {"partition": partition, "owner": asdict(owner)}
            return Answer(HTTPStatus.TEMPORARY_REDIRECT, told, {"Location": url})
        if not self._forwards.acquire(blocking=False):
            busy = f"{FORWARDED.value} queries wait for other workers; ask again"
            raise NotServed(HTTPStatus.SERVICE_UNAVAILABLE, busy)
        try:
            return self._forwarded(store, partition, owner, path, request.headers)
        finally:
            self._forwards.release()

    def _forwarded(
        self,
        store: QueriedStore,
        partition: int,
        owner: Owner,
        path: str,
        headers: Mapping[str, str],
    ) -> Answer:
        """Return the owner's answer; if it is not the owner any more, that of the next one."""
        asked_at = self._owners.now()
        answer = self._asked(owner, path, headers)
        if not isinstance(answer, Answer) or answer.status is HTTPStatus.MISDIRECTED_REQUEST:
            # It has lost the partition, or has started again at another address.
            later = self._owner(store, partition, since=asked_at)
            if later != owner:
                answer = self._asked(later, path, headers)
        if isinstance(answer, peers.PeerMistaken):
            raise NotServed(HTTPStatus.BAD_GATEWAY, str(answer), partition=partition)
        if isinstance(answer, peers.PeerSilent) or answer.status is HTTPStatus.MISDIRECTED_REQUEST:
            why = str(answer) if isinstance(answer, peers.PeerSilent) else "its owner changes"
            raise NotServed(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"partition {partition} of store {store.name!r} cannot be read now: {why}; ask "
                f"again",
                partition=partition,
            )
        return answer

    def _asked(
        self, owner: Owner, path: str, headers: Mapping[str, str]
    ) -> Answer | peers.PeerSilent | peers.PeerMistaken:
        address = _announced(owner)
        try:
            found = peers.ask_peer(self._application, owner, address, path, headers)
        except (peers.PeerSilent, peers.PeerMistaken) as error:
            return error
        content = Text(found.content, "application/json")
        return Answer(found.status, content, found.headers)

    def _owner(self, store: QueriedStore, partition: int, since: float | None = None) -> Owner:
        owner = self._owners.owner(store.sub_topology, partition, since)
        if owner.instance == self._owners.instance:
            raise StoreNotReady(
                f"partition {partition} of store {store.name!r} is being taken over by this "
                f"worker; ask again"
            )
        return owner

    def _scan(self, store: QueriedStore, options: Mapping[str, str]) -> Answer:
        """Answer with the rows of a range in the partitions of this worker."""
        limit = _limit(options)
        first = key_of(store.store, options["from"]) if "from" in options else b""
        last = key_of(store.store, options["to"]) if "to" in options else None
        self._require_up_to_date(store)
        member_id, here = self._owners.member_id(), [*self._stores.here(store)]
        rows = (
            {"key": r.key, "value": r.value, "timestamp": r.timestamp, "partition": partition}
            for partition, r in self._confirmed(store, first, last, member_id)
        )
        found = {"store": store.name, "partitions": here}
        answer = _answer(found, BoundedRows(rows, limit, STATE_BYTES.value))
        if here:
            self._owners.confirm(member_id, store.sub_topology, here)
        return answer

    def _confirmed(
        self, store: QueriedStore, first: bytes, last: bytes | None, member_id: str
    ) -> Iterator[tuple[int, Row]]:
        """Yield rows, those of a partition only if the group assigns it to this worker."""
        read: int | None = None
        for partition, row in self._stores.scan(store, first, last):
            if partition != read:
                self._owners.confirm(member_id, store.sub_topology, [partition])
                read = partition
            yield partition, row

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


def _at(options: Mapping[str, str]) -> At:
    text = options.get("at", At.OWNER)
    if text not in [*At]:
        known = ", ".join(At)
        message = f"at={text!r:.40} cannot be; expected one of {known}"
        raise NotServed(HTTPStatus.BAD_REQUEST, message)
    return At(text)


def _announced(owner: Owner) -> str:
    if owner.address is None:
        raise StoreNotReady(
            f"worker {owner.instance!r} has the partition and has announced no address yet; ask "
            f"again, or set its worker.http_address, and worker.http_advertised_address if that is "
            f"a wildcard"
        )
    return owner.address


def _limit(options: Mapping[str, Any]) -> int:
    text = options.get("limit", str(DEFAULT_LIMIT))
    # `int` raises for more than 4,300 digits, and accepts digits of other scripts.
    if _NUMBER.fullmatch(text) is None or not 0 < int(text) <= STATE_ROWS.value:
        raise NotServed(
            HTTPStatus.BAD_REQUEST,
            f"limit={text!r:.40} cannot be; expected a number from 1 to {STATE_ROWS.value}",
        )
    return int(text)
