"""The context of a `process` function: its stores, and event-time timers.

A timer is an entry under its time and key in a store of its own. It is therefore set, cancelled and
fired in transactions, and it survives the worker. It fires directly after the record that moved
stream time to it, ordered by time, then key.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from typing import Any

from eosframework.engine.operators.store_transaction import StoreTransaction
from eosframework.engine.operators.windows import Agenda, Alarm, TimedState
from eosframework.errors import ConfigurationError
from eosframework.records import Record, as_milliseconds
from eosframework.serialization.key_bytes import key_encoder
from eosframework.serialization.references import closest
from eosframework.serialization.serdes import Serde


class KeyedStore:
    """A key-value store; a change takes effect with the record, or not at all.

    Args:
        store: the transaction of the store.
        key: serde of its keys.
        time: returns the timestamp of the record in process.
    """

    def __init__(self, store: StoreTransaction, key: Serde, time: Callable[[], int]) -> None:
        self._store = store
        self._encode = key_encoder(key) or bytes
        self._decode = store.form.held.reading(key.decode or bytes)
        self._time = time

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key: a copy, which may be changed and put back."""
        entry = self._store.get(self._encode(key))
        return default if entry is None else entry[0]

    def put(self, key: Any, value: Any) -> None:
        """Store a value; None deletes the key."""
        if value is None:
            self.delete(key)
        else:
            self._store.put(self._encode(key), (value, self._time()))

    def delete(self, key: Any) -> None:
        """Delete a key."""
        self._store.delete(self._encode(key))

    def items(
        self, first: Any = None, last: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values in the order of the encoded keys.

        Changes made during the iteration are not visible to it.

        Args:
            first: the first key, inclusive; None: the start of the store.
            last: the last key, exclusive; None: the end of the store.
            reverse: iterate from the last key to the first.
        """
        start = b"" if first is None else self._encode(first)
        end = None if last is None else self._encode(last)
        for key, (value, _) in self._store.scan(start, end, reverse=reverse):
            yield self._decode(key), value


class Timers(TimedState):
    """The timers of one node in one task.

    Args:
        store: the transaction of their store, whose serde is json.
        alarm: set to the time of the first timer.
    """

    def __init__(self, store: StoreTransaction, alarm: Alarm) -> None:
        super().__init__(alarm)
        self._agenda = Agenda(store)

    def begin(self) -> None:
        """Reload the timers: the store may have been replaced."""
        self._agenda.load()
        self.alarm.set(self.due())

    def set(self, at: int, key: bytes) -> None:
        """Set a timer; setting the same timer twice sets it once."""
        self._agenda.add(at, key)
        self.alarm.set(at)

    def cancel(self, at: int, key: bytes) -> None:
        """Cancel a timer; cancelling one that is not set has no effect."""
        self._agenda.cancel(at, key)

    def due(self) -> int:
        """Return the time of the first timer, or of one that was cancelled before it."""
        return self._agenda.due()

    def closing(self, now: int) -> Generator[tuple[bytes, int] | None]:
        """Yield key and time of each due timer, including those set during the iteration.

        A timer counts as fired when the next one is requested, so a timer whose function failed
        remains set.
        """
        while (first := self._agenda.first()) is not None and first[0] <= now:
            at, key = first
            if not self._agenda.pass_first():
                yield None
                continue
            try:
                yield key, at
            except GeneratorExit:  # It has not fired, or its function failed.
                self._agenda.put_back(at, key)
                raise
            self._agenda.cancel(at, key)


class Context:
    """The second argument of a `process` function.

    Attributes:
        stream_time: the highest event time that the task has seen, in milliseconds.
        record_key: the key of the record or timer.
    """

    def __init__(self, stores: Mapping[str, KeyedStore], timers: Timers | None, key: Serde) -> None:
        self.stream_time = 0
        self._stores = stores
        self._timers = timers
        self._key = key
        self._encode = key_encoder(key) or bytes
        self.record_key: Any = None

    def store(self, name: str) -> KeyedStore:
        """Return a store that the step declares.

        Raises:
            ConfigurationError: the step declares no store of this name.
        """
        if name not in self._stores:
            raise ConfigurationError(
                f"process has no store {name!r}; it declares "
                f"{', '.join(self._stores) or 'none'}{closest(name, self._stores)}"
            )
        return self._stores[name]

    def set_timer(self, at: int | datetime, key: Any = None) -> None:
        """Schedule a call of `on_timer` for when stream time reaches `at`.

        Args:
            at: milliseconds since the epoch, or a datetime (UTC if it has no zone).
            key: passed to `on_timer`; None: the key of the record.
        """
        self._of_step().set(
            as_milliseconds(at), self._encode(self.record_key if key is None else key)
        )

    def cancel_timer(self, at: int | datetime, key: Any = None) -> None:
        """Cancel a timer that was set with the same time and key."""
        wanted = self._encode(self.record_key if key is None else key)
        self._of_step().cancel(as_milliseconds(at), wanted)

    def _of_step(self) -> Timers:
        if self._timers is None:
            raise ConfigurationError("process has no timers; declare on_timer: module:function")
        return self._timers


class Handler:
    """Runs the functions of one `process` step in one task.

    Args:
        function: takes a record and the context, returns records or None.
        on_timer: takes key, time in milliseconds and the context, returns records or None.
        stores: store transactions and key serdes, by name.
        timers: None where the step has no `on_timer`.
        key: serde of the stream's keys.
    """

    def __init__(
        self,
        function: Callable[[Record, Context], Any],
        on_timer: Callable[[Any, int, Context], Any] | None,
        stores: Mapping[str, tuple[StoreTransaction, Serde]],
        timers: Timers | None,
        key: Serde,
    ) -> None:
        self.timers = timers
        self._function = function
        self._on_timer = on_timer
        self._timestamp = 0
        self._context = Context(
            {
                name: KeyedStore(store, serde, lambda: self._timestamp)
                for name, (store, serde) in stores.items()
            },
            timers,
            key,
        )

    def record(self, record: Record, stream_time: int) -> Any:
        """Return the result of the function for a record."""
        return self._function(record, self._at(record.key, record.timestamp, stream_time))

    def timer(self, key: Any, at: int, stream_time: int) -> Any:
        """Return the result of `on_timer`."""
        assert self._on_timer is not None, "timers are set only where there is such a function"
        return self._on_timer(key, at, self._at(key, at, stream_time))

    def _at(self, key: Any, timestamp: int, stream_time: int) -> Context:
        self._timestamp = timestamp
        context = self._context
        context.stream_time, context.record_key = stream_time, key
        return context
