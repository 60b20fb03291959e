"""The base of operators whose state ends with time.

Time is the task's stream time. A window that stream time has passed accepts no record, whether it
was removed or not: lateness follows from times alone, so removal can wait for a commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eosframework.errors import RunError
from eosframework.operators.entries import Entry
from eosframework.operators.store_transaction import StoreTransaction
from eosframework.operators.windows.window_entries import MARK_KEY, Mark
from eosframework.records import WindowResult
from eosframework.topology.spec.window_spec import Window, windows_in_words

NEVER = 1 << 63
"""Later than every time."""

Result = tuple[Any, int]
"""An emitted value and its timestamp."""

Update = Callable[[bytes, Any, int, int], "Sequence[Result] | None"]
"""Takes key, value and timestamp of a record and the stream time; returns the results to emit.
None: the record is late."""

Closed = tuple[bytes, WindowResult, int]
"""The key of a window, its result, and its timestamp."""


class Alarm:
    """The stream time at which the first of several operators is due."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due = NEVER

    def set(self, due: int) -> None:
        """Make the alarm due at `due` or earlier."""
        if due < self.due:
            self.due = due


@dataclass(frozen=True, slots=True)
class Alarms:
    """The alarms of a task.

    Args:
        closes: a window closes and emits its result; checked after every record.
        ends: state can be removed; checked before a commit.
    """

    closes: Alarm = field(default_factory=Alarm)
    ends: Alarm = field(default_factory=Alarm)


class TimedState(ABC):
    """State of one keyed node in one task that is removed when its time has passed.

    Args:
        alarm: set to the time at which state is due.
    """

    def __init__(self, alarm: Alarm) -> None:
        self.alarm = alarm

    @abstractmethod
    def begin(self) -> None:
        """Load the content of the store, which may have been replaced."""

    @abstractmethod
    def due(self) -> int:
        """Return the stream time from which `closing` has work, or earlier."""

    @abstractmethod
    def closing(self, now: int) -> Generator[Any]:
        """Remove the state that `now` has passed, and yield the results that this emits.

        None is yielded for a removal without a result: the caller may end the generator after each
        step, and what is left is still due.
        """


class WindowOperator(TimedState):
    """The windows of one keyed node in one task.

    Args:
        store: the transaction of its store.
        window: the window that the node declares.
        alarm: set to the time at which a window is due.
    """

    def __init__(self, store: StoreTransaction, window: Window, alarm: Alarm) -> None:
        super().__init__(alarm)
        self.window = window
        self._store = store
        self._floor = 0

    @abstractmethod
    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Take a record; see `Update`."""

    @property
    def floor(self) -> int:
        """The time up to which the clock has closed windows."""
        return self._floor

    @abstractmethod
    def closing(self, now: int) -> Generator[Closed | None]:
        """Yield each window that `now` closes, and remove those that have ended.

        A window counts as closed when the next one is requested, so a window whose result failed
        stays open.
        """

    @abstractmethod
    def changed(self) -> Iterator[Closed]:
        """Yield each window that the open transaction changed, with its last result."""

    @abstractmethod
    def load(self) -> None:
        """Load the due times from the store."""

    @abstractmethod
    def last_close(self) -> int:
        """Return the stream time that would close every window; 0: none is open."""

    def begin(self) -> None:
        """Load the content of the store, which may have been replaced.

        Raises:
            RunError: the store was made for other windows.
        """
        mark: Entry | None = self._store.get(MARK_KEY)
        signature = self.window.signature
        if mark is None and next(iter(self._store.scan()), None) is None:
            self._store.put(MARK_KEY, mark := (Mark(signature), 0))
        if mark is None or mark[0].signature != signature:
            found = (
                "values without windows" if mark is None else windows_in_words(mark[0].signature)
            )
            raise RunError(
                f"store {self._store.form.store!r} holds {found}, and the topology declares "
                f"{windows_in_words(signature)}; give the step another store name: store: NAME. "
                f"The new store begins empty"
            )
        self._floor = mark[1]
        self.load()
        self.alarm.set(self.due())

    def close_by_clock(self) -> int:
        """Mark all open windows as closed, and return the stream time that closes them.

        Records that arrive later for one of these windows are late; other operators are unaffected.
        """
        now = self.last_close()
        if now > self._floor:
            self._floor = now
            self._store.put(MARK_KEY, (Mark(self.window.signature), now))
        return now
