"""What operators have in common whose state ends with time: when it is due, and up to when.

Time is the task's stream time. A window that it has passed takes nothing any more, whether it was
removed or not: what is late follows from the times alone, so that removing can wait for a commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eosframework.errors import RunError
from eosframework.operators.entries import Entry
from eosframework.operators.store_transaction import StoreSession
from eosframework.operators.windows.window_entries import MARK_KEY, Mark
from eosframework.records import WindowResult
from eosframework.topology.spec.window_spec import Window

NEVER = 1 << 63
"""Later than every time."""

Result = tuple[Any, int]
"""A value that goes on, and its timestamp."""

Update = Callable[[bytes, Any, int, int], "Sequence[Result] | None"]
"""Takes key, value and timestamp of a record and the stream time; returns what goes on. None: the
record is late."""

Closed = tuple[bytes, WindowResult, int]
"""The key of a window, its result, and its timestamp."""


class Alarm:
    """The stream time at which one of several operators is due."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due = NEVER

    def set(self, due: int) -> None:
        """Make sure to be due at `due` at the latest."""
        if due < self.due:
            self.due = due


@dataclass(frozen=True, slots=True)
class Alarms:
    """Those of a task.

    Args:
        closes: a window closes, and its result goes on; looked at after every record.
        ends: something can be removed; looked at before a commit.
    """

    closes: Alarm = field(default_factory=Alarm)
    ends: Alarm = field(default_factory=Alarm)


class Closing(ABC):
    """State of one keyed node in one task, of which something is removed when its time is over.

    Args:
        alarm: is set to when something is due.
    """

    def __init__(self, alarm: Alarm) -> None:
        self.alarm = alarm

    @abstractmethod
    def begin(self) -> None:
        """Look at a store that may hold something else than before."""

    @abstractmethod
    def due(self) -> int:
        """Return the stream time from which on `closing` has something to do, or earlier."""

    @abstractmethod
    def closing(self, now: int) -> Generator[Any]:
        """Remove what is over, and yield what goes on because of that."""


class TimedOperator(Closing):
    """State of one keyed node in one task that ends with time.

    Args:
        session: of its store.
        window: what the node declares.
        alarm: is set to when something is due.
    """

    def __init__(self, session: StoreSession, window: Window, alarm: Alarm) -> None:
        super().__init__(alarm)
        self.window = window
        self._session = session
        self._floor = 0

    @abstractmethod
    def update(self, key: bytes, value: Any, timestamp: int, now: int) -> Sequence[Result] | None:
        """Take a record; see `Update`."""

    @abstractmethod
    def closing(self, now: int) -> Generator[Closed]:
        """Yield each window that `now` closes, and remove what has ended.

        A window counts as closed when the next one is asked for, so that one whose result failed
        stays open.
        """

    @abstractmethod
    def changed(self) -> Iterator[Closed]:
        """Yield each window that the open transaction changed, with its last result."""

    @abstractmethod
    def load(self) -> None:
        """Find out what the store holds that will be due."""

    @abstractmethod
    def last_close(self) -> int:
        """Return the stream time that would close every window; 0: none is open."""

    def begin(self) -> None:
        """Look at a store that may hold something else than before.

        Raises:
            RunError: it was made for other windows.
        """
        mark: Entry | None = self._session.get(MARK_KEY)
        signature = self.window.signature
        if mark is None and next(iter(self._session.scan()), None) is None:
            self._session.put(MARK_KEY, mark := (Mark(signature), 0))
        if mark is None or mark[0].signature != signature:
            found = "values without windows" if mark is None else f"{mark[0].signature} ms"
            raise RunError(
                f"store {self._session.form.store!r} holds {found}, and the topology declares "
                f"{signature} ms; give the step another store name: store: NAME, and what it "
                f"holds is built from now on"
            )
        self._floor = mark[1]
        self.load()
        self.alarm.set(self.due())

    def close_by_clock(self) -> int:
        """Let everything that is open be closed, and return the stream time that does it.

        What comes later for one of these windows is late; other operators know nothing of it.
        """
        now = self.last_close()
        if now > self._floor:
            self._floor = now
            self._session.put(MARK_KEY, (Mark(self.window.signature), now))
        return now
