"""The layouts of the three stores of a join of two tables by a foreign key (ADR 41)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eosframework.engine.operators.foreign_keys import (
    read_subscriber,
    read_subscription,
    subscribers_of,
    subscription_key,
)
from eosframework.engine.operators.foreign_rows import RowState
from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.serialization.serdes import Serde
from eosframework.state.layout import Layout, Row, bounds
from eosframework.topology.graph.graph import Answers, ForeignJoin, Subscribe


class SubscribedLayout(Layout):
    """Left rows with the foreign key that each subscribes to; None: it has none."""

    has_one_row = True

    def __init__(self, node: Subscribe) -> None:
        super().__init__(node.store)
        self._foreign = node.foreign

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the subscription of a left row."""
        if (data := content.get(subscription_key(key))) is not None:
            yield self._subscription(key, data)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield the subscriptions in the order of their keys; the counter of versions is none."""
        prefix = subscription_key(b"")
        for name, data in content.scan(*bounds(prefix, first, last)):
            yield self._subscription(name[len(prefix) :], data)

    def _subscription(self, key: bytes, data: bytes) -> Row:
        kept, timestamp = self._form.decode(data)
        version, foreign = self._form.held.reading(read_subscription)(kept)
        shown = None if foreign is None else self._decoded(self._foreign, foreign)
        return self._row(key, {"foreign_key": shown, "version": version}, timestamp)


class SubscribersLayout(Layout):
    """Foreign keys with the left rows that subscribe to them, one row for each of these."""

    def __init__(self, node: Answers) -> None:
        super().__init__(node.store)
        self._left = node.key

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield the subscribers of a foreign key."""
        for name, data in content.scan(*subscribers_of(key)):
            yield self._subscriber(name, data)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield the subscribers by the length of the foreign key, then by that key."""
        for name, data in content.scan(b"", None):
            key, _ = self._form.held.reading(read_subscriber)(name)
            if key >= first and (last is None or key < last):
                yield self._subscriber(name, data)

    def _subscriber(self, name: bytes, data: bytes) -> Row:
        kept, timestamp = self._form.decode(data)
        foreign, key = self._form.held.reading(read_subscriber)(name)
        version, _ = self._form.held.reading(read_subscription)(kept)
        shown = {"subscriber": self._decoded(self._left, key), "version": version}
        return self._row(foreign, shown, timestamp)


class JoinedLayout(Layout):
    """The rows of both tables by the left key, with the versions that say whether they belong."""

    has_one_row = True

    def __init__(self, node: ForeignJoin) -> None:
        super().__init__(node.store)
        self._rows = node.rows

    def get(self, content: CommittedStore, key: bytes) -> Iterator[Row]:
        """Yield both rows of a left key."""
        if (data := content.get(key)) is not None:
            yield self._both(key, data)

    def scan(self, content: CommittedStore, first: bytes, last: bytes | None) -> Iterator[Row]:
        """Yield both rows of each left key, in the order of the keys."""
        for key, data in content.scan(first, last):
            yield self._both(key, data)

    def _both(self, key: bytes, data: bytes) -> Row:
        kept, timestamp = self._form.decode(data)
        state = self._form.held.reading(RowState.decode)(kept)
        left, right = self._rows
        value = {
            "left": self._shown(left, state.left),
            "right": self._shown(right, state.right),
            "version": state.version,
            "answered": state.answered,
            "subscriptions": state.opened,
        }
        return self._row(key, value, timestamp)

    def _shown(self, serde: Serde, data: bytes | None) -> Any:
        return None if data is None else self._decoded(serde, data)
