"""What a function of `process` works with: its stores, and timers of event time.

A timer is an entry in a store of its own, under its time and its key. So it is set, cancelled and
fired in transactions like everything else, and it outlasts the worker. It fires right behind the
record that moved stream time to it, in the order of times and then of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from typing import Any

from eosframework.errors import ConfigurationError
from eosframework.operators.store_transaction import StoreSession
from eosframework.operators.windows.agenda import Agenda
from eosframework.operators.windows.closing import Alarm, Closing
from eosframework.records import Record, as_milliseconds
from eosframework.serialization.references import closest
from eosframework.serialization.serdes import Serde


class KeyedStore:
    """A store by key; what is put takes effect with the record, or not at all.

    Args:
        session: of the store.
        key: serde of its keys.
        time: tells the timestamp of the record that is being processed.
    """

    def __init__(self, session: StoreSession, key: Serde, time: Callable[[], int]) -> None:
        self._session = session
        self._encode = key.encode or bytes
        self._decode = key.decode or bytes
        self._time = time

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key; a copy, which can be changed and put back."""
        entry = self._session.get(self._encode(key))
        return default if entry is None else entry[0]

    def put(self, key: Any, value: Any) -> None:
        """Keep a value; None deletes."""
        if value is None:
            self.delete(key)
        else:
            self._session.put(self._encode(key), (value, self._time()))

    def delete(self, key: Any) -> None:
        """Forget a key."""
        self._session.delete(self._encode(key))

    def items(
        self, first: Any = None, last: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Yield keys with their values in the order of the encoded keys.

        What is changed meanwhile does not show.

        Args:
            first: where to begin; None: at the first key.
            last: where to end, without it; None: behind the last key.
            reverse: from the last one to the first.
        """
        start = b"" if first is None else self._encode(first)
        end = None if last is None else self._encode(last)
        for key, (value, _) in self._session.scan(start, end, reverse=reverse):
            yield self._decode(key), value


class Timers(Closing):
    """The timers of one node in one task.

    Args:
        session: of their store, whose serde is json.
        alarm: is set to when the first is due.
    """

    def __init__(self, session: StoreSession, alarm: Alarm) -> None:
        super().__init__(alarm)
        self._agenda = Agenda(session)

    def begin(self) -> None:
        """Look at a store that may hold something else than before."""
        self._agenda.load()
        self.alarm.set(self.due())

    def set(self, at: int, key: bytes) -> None:
        """Set a timer; setting it twice is setting it once."""
        self._agenda.add(at, key)
        self.alarm.set(at)

    def cancel(self, at: int, key: bytes) -> None:
        """Cancel a timer; one that is not set is no error."""
        self._agenda.cancel(at, key)

    def due(self) -> int:
        """Return the time of the first timer, or of one that was cancelled before it."""
        return self._agenda.due()

    def closing(self, now: int) -> Generator[tuple[bytes, int]]:
        """Yield key and time of each timer that is due, also of one that was set meanwhile.

        A timer counts as fired when the next one is asked for, so that one whose function failed
        is still set.
        """
        while (first := self._agenda.first()) is not None and first[0] <= now:
            at, key = first
            if self._agenda.pass_first():
                yield key, at
                self._agenda.cancel(at, key)


class Context:
    """What a function of `process` is given beside the record.

    Attributes:
        stream_time: the highest event time that the task has seen, in milliseconds.
        record_key: the key of the record or timer.
    """

    def __init__(self, stores: Mapping[str, KeyedStore], timers: Timers | None, key: Serde) -> None:
        self.stream_time = 0
        self._stores = stores
        self._timers = timers
        self._key = key
        self._encode = key.encode or bytes
        self.record_key: Any = None

    def store(self, name: str) -> KeyedStore:
        """Return a store that the step declares.

        Raises:
            ConfigurationError: it declares none of this name.
        """
        if name not in self._stores:
            raise ConfigurationError(
                f"process has no store {name!r}; it declares "
                f"{', '.join(self._stores) or 'none'}{closest(name, self._stores)}"
            )
        return self._stores[name]

    def set_timer(self, at: int | datetime, key: Any = None) -> None:
        """Let `on_timer` be called once stream time has come to `at`.

        Args:
            at: milliseconds since the epoch, or a datetime (without a zone it counts as UTC).
            key: that `on_timer` is given; None: that of the record.
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
        function: takes record and context, gives records or None.
        on_timer: takes key, time in milliseconds and context, gives records or None.
        stores: by name.
        timers: None where there is no `on_timer`.
        key: serde of the stream's keys.
    """

    def __init__(
        self,
        function: Callable[[Record, Context], Any],
        on_timer: Callable[[Any, int, Context], Any] | None,
        stores: Mapping[str, tuple[StoreSession, Serde]],
        timers: Timers | None,
        key: Serde,
    ) -> None:
        self.timers = timers
        self._function = function
        self._on_timer = on_timer
        self._timestamp = 0
        self._context = Context(
            {
                name: KeyedStore(session, serde, lambda: self._timestamp)
                for name, (session, serde) in stores.items()
            },
            timers,
            key,
        )

    def record(self, record: Record, stream_time: int) -> Any:
        """Return what the function gives for a record."""
        return self._function(record, self._at(record.key, record.timestamp, stream_time))

    def timer(self, key: Any, at: int, stream_time: int) -> Any:
        """Return what the function for timers gives."""
        assert self._on_timer is not None, "timers are set only where there is such a function"
        return self._on_timer(key, at, self._at(key, at, stream_time))

    def _at(self, key: Any, timestamp: int, stream_time: int) -> Context:
        self._timestamp = timestamp
        context = self._context
        context.stream_time, context.record_key = stream_time, key
        return context
