"""The effects of one task: its entries of the journal, and the effects under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from eosframework.engine.calls.flights import Call
from eosframework.engine.effects.entries import Entry
from eosframework.engine.failures.failure_headers import RetriedRecord
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Once, Step, SubTopology
from eosframework.topology.graph.walk import nodes_of
from eosframework.transactions.ports import Message
from eosframework.txnid import TransactionalId

Reached = Callable[[TopicPartition], int | None]
"""Returns the committed offset of a source partition of the task; None: it reads it no more."""


@dataclass(slots=True, eq=False)
class Running:
    """An effect from its first intent to its last result.

    Args:
        key: of the effect.
        task: its task.
        wanted: the first call that wants its result.
        attempt: the number of the present attempt.
        looks_up: the service is asked first.

    Attributes:
        waiters: the calls that want its result.
        failures: attempts of this process that have failed.
        holds_place: it counts among the effects that have begun.
        call: the present attempt, once its intent is written.
    """

    key: str
    task: TaskEffects
    wanted: Call
    attempt: int
    looks_up: bool
    waiters: list[Call] = field(default_factory=list[Call])
    failures: int = 0
    holds_place: bool = False
    call: Call | None = None

    @property
    def step(self) -> Step:
        """Its step."""
        return self.wanted.node.step

    @property
    def once(self) -> Once:
        """The options of its step."""
        assert self.wanted.node.once is not None, "its calls take effect once"
        return self.wanted.node.once


class TaskEffects:
    """The effects of a task.

    Args:
        identity: of the task.
        partition: of the journal.
        transactional_id: that writes it.
        part: its sub-topology.

    Attributes:
        running: effects under way, by key.
        carrier: the owner of their calls on the event loop.
        end: an offset of the journal that its records have reached.
        reached: see `Reached`.
        is_read: the entries are read.
    """

    def __init__(
        self,
        identity: TransactionalId,
        partition: TopicPartition,
        transactional_id: str,
        part: SubTopology,
    ) -> None:
        self.identity = identity
        self.partition = partition
        self.transactional_id = transactional_id
        self.running: dict[str, Running] = {}
        self.carrier = object()
        self.end = 0
        self.reached: Reached = lambda _: 0
        self.is_read = False
        self.is_closed = False
        self._keep_ms = {once.label: once.timing.keep_seconds * 1000 for once in onces_of(part)}
        self._entries: dict[str, Entry] = {}
        self._places: deque[tuple[int, str]] = deque()
        self._newest: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of entries that are held."""
        return len(self._entries)

    def key_of(self, call: Call) -> str:
        """Return the key of the effect of a call.

        Raises:
            Exception: the user's function for it fails, or returns no text.
        """
        once = call.node.once
        assert once is not None, "its calls take effect once"
        task, (topic, offset) = self.identity, _origin(call.flight.message)
        number = f"#{call.number}" if call.number > 1 else ""
        place = f"{task.application}/{task.sub_topology}/{task.partition}/{topic}/{offset}"
        key = f"{place}/{once.label}{number}"
        if once.key is None:
            return key
        added = once.key.call(call.value)
        if not isinstance(added, str):
            raise TypeError(
                f"{once.key.name} returned {type(added).__name__}; expected a text, which is added "
                f"to the key of the effect"
            )
        return f"{key}/{added}"

    def entry(self, key: str) -> Entry | None:
        """Return the newest entry of a key."""
        return self._entries.get(key)

    def note(self, key: str, entry: Entry, place: int) -> None:
        """Take an entry that is committed.

        Args:
            key: of the effect.
            entry: its newest one.
            place: an offset that its record, and those after it, have reached.
        """
        self.end = max(self.end, place)
        self._entries[key] = entry
        self._newest[key] = self.end
        self._places.append((self.end, key))

    def first_needed(self, now_ms: float) -> int:
        """Forget what has expired, and return the first offset of the journal that may matter."""
        places = self._places
        while places:
            place, key = places[0]
            if self._newest.get(key) == place:
                if not self.has_expired(key, self._entries[key], now_ms):
                    return place
                del self._entries[key], self._newest[key]
            places.popleft()
        return self.end

    def has_expired(self, key: str, entry: Entry, now_ms: float) -> bool:
        """Return whether an entry may be forgotten."""
        if key in self.running:
            return False
        label = "".join(key.split("/", 6)[5:6]).partition("#")[0]
        if now_ms - entry.written_ms < self._keep_ms.get(label, 0.0):
            return False
        reached = self.reached(TopicPartition(entry.topic, self.partition.partition))
        return reached is None or entry.offset < reached


def onces_of(part: SubTopology) -> Iterable[Once]:
    """Return the options of the steps of a sub-topology whose calls take effect once."""
    for node in nodes_of(part):
        if isinstance(node, Step) and node.calls is not None and node.calls.once is not None:
            yield node.calls.once


def _origin(message: Message) -> tuple[str, int]:
    if isinstance(message, RetriedRecord):
        topic, _, offset = message.origin
        return topic, offset
    return message.topic(), message.offset()
