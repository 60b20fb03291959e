"""The context of a `process` function: its stores and timers.

A timer is an entry under its time and key in a store of its own. It is therefore set, cancelled and
fired in transactions, and it survives the worker. It fires directly after the record that moved
stream time to it, ordered by time, then key; one of the wall clock as `wall_clock` states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

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


Clock = Literal["stream", "wall"]
"""The clock of a timer."""


class Context:
    """The second argument of a `process` function.

    Attributes:
        stream_time: the highest event time that the task has seen, in milliseconds.
        record_key: the key of the record or timer; None in `on_every`.
        partition: the partition number of the task.
    """

    def __init__(
        self,
        stores: Mapping[str, KeyedStore],
        timers: Timers | None,
        key: Serde,
        wall_timers: Timers | None = None,
        now: Callable[[], float] = time.time,
        partition: int = 0,
    ) -> None:
        self.stream_time = 0
        self.partition = partition
        self._stores = stores
        self._timers = {"stream": timers, "wall": wall_timers}
        self._now = now
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

    @property
    def wall_time(self) -> int:
        """The time of the wall clock in milliseconds since the epoch; in tests that of the driver.

        A record that is run again after an abort or a crash meets another time.
        """
        return int(self._now() * 1000)

    def set_timer(self, at: int | datetime, key: Any = None, *, clock: Clock = "stream") -> None:
        """Schedule a call of `on_timer` or `on_wall_timer` for the time `at`.

        Args:
            at: milliseconds since the epoch, or a datetime (UTC if it has no zone).
            key: passed to the function; None: the key of the record.
            clock: `"stream"`: `on_timer` is called when stream time reaches `at`. `"wall"`:
                `on_wall_timer` is called when the wall clock does.

        Raises:
            ConfigurationError: the step declares no function for such timers, or there is no key.
        """
        self._of_step(clock).set(as_milliseconds(at), self._key_of(key))

    def cancel_timer(self, at: int | datetime, key: Any = None, *, clock: Clock = "stream") -> None:
        """Cancel a timer that was set with the same time, key and clock."""
        self._of_step(clock).cancel(as_milliseconds(at), self._key_of(key))

    def _key_of(self, key: Any) -> bytes:
        if key is None and self.record_key is None:
            raise ConfigurationError(
                "a timer needs a key: there is no record here whose key it could have; state key="
            )
        return self._encode(self.record_key if key is None else key)

    def _of_step(self, clock: Clock) -> Timers:
        if clock not in self._timers:
            raise ConfigurationError(f"clock={clock!r} is unknown; expected 'stream' or 'wall'")
        found = self._timers[clock]
        if found is None:
            function = "on_timer" if clock == "stream" else "on_wall_timer"
            raise ConfigurationError(
                f"process has no timers of this clock ({clock}); declare {function}: "
                f"module:function"
            )
        return found


class Handler:
    """Runs the functions of one `process` step in one task.

    Args:
        function: takes a record and the context, returns records or None; None: records end here.
        on_timer: takes key, time in milliseconds and the context, returns records or None.
        stores: store transactions and key serdes, by name.
        timers: None where the step has no `on_timer`.
        key: serde of the stream's keys.
        wall_timers: None where the step has no `on_wall_timer`.
        now: returns the seconds since the epoch.
        partition: of the task.
    """

    def __init__(
        self,
        function: Callable[[Record, Context], Any] | None,
        on_timer: Callable[[Any, int, Context], Any] | None,
        stores: Mapping[str, tuple[StoreTransaction, Serde]],
        timers: Timers | None,
        key: Serde,
        wall_timers: Timers | None = None,
        now: Callable[[], float] = time.time,
        partition: int = 0,
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
            wall_timers,
            now,
            partition,
        )

    def record(self, record: Record, stream_time: int) -> Any:
        """Return the result of the function for a record."""
        assert self._function is not None, "records reach a step that has a function for them"
        return self._function(record, self._at(record.key, record.timestamp, stream_time))

    def timer(self, key: Any, at: int, stream_time: int) -> Any:
        """Return the result of `on_timer`."""
        assert self._on_timer is not None, "timers are set only where there is such a function"
        return self._on_timer(key, at, self._at(key, at, stream_time))

    def wall_timer(
        self,
        function: Callable[[Any, int, Context], Any],
        key: Any,
        due: int,
        at: int,
        stream_time: int,
    ) -> Any:
        """Return the result of `on_wall_timer`.

        Args:
            function: the function.
            key: of the timer.
            due: the time of the timer, in milliseconds.
            at: the event time of what it puts and returns.
            stream_time: of the task.
        """
        return function(key, due, self._at(key, at, stream_time))

    def every(
        self, function: Callable[[int, Context], Any], due: int, at: int, stream_time: int
    ) -> Any:
        """Return the result of `on_every`; see `wall_timer`."""
        return function(due, self._at(None, at, stream_time))

    def _at(self, key: Any, timestamp: int, stream_time: int) -> Context:
        self._timestamp = timestamp
        context = self._context
        context.stream_time, context.record_key = stream_time, key
        return context
