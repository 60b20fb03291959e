"""The queue of a task whose sources call coroutines: records wait here for their calls (ADR 35).

Another queue chooses the order of the records. Those it gives wait in lanes, each in its order; the
complete records at the head of a lane may be run. A lane is a partition, so a call that hangs holds
back no other partition. Where results depend on the order of several sources, all are in one lane.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping

from eosframework.engine.calls.call_runner import CallRunner
from eosframework.engine.calls.flights import Call, Flight, FlightPlan
from eosframework.engine.calls.landing import ahead_of
from eosframework.engine.codegen.compiler import CompiledPart
from eosframework.engine.task.input_queues import Pending, Queue
from eosframework.records import TopicPartition
from eosframework.topology.graph.walk import has_state

TAKEN_RECORDS = 100
"""The most records that are taken from the other queue at once."""


class CallQueue:
    """A queue that passes on records whose calls have ended.

    Args:
        others: the queue that chooses the order.
        plans: by source topic, the part of its code that runs ahead; None: it makes no calls.
        runner: runs the calls.
        owner: of the records.
        one_lane: records of all partitions keep one order.
    """

    def __init__(
        self,
        others: Queue,
        plans: Mapping[str, FlightPlan | None],
        runner: CallRunner,
        owner: object,
        *,
        one_lane: bool,
    ) -> None:
        self._others = others
        self._plans = plans
        self._runner = runner
        self._one_lane = one_lane
        found = [plan for plan in plans.values() if plan is not None]
        self._most_calls = max(plan.most_calls for plan in found)
        self._most_records = max(map(ahead_of, found))
        self._lanes: dict[Hashable, deque[Flight]] = {}
        self._held = 0
        self._records: Counter[TopicPartition] = Counter()
        self._bytes: Counter[TopicPartition] = Counter()
        """Of the held records, by partition; results are counted by the runner."""
        self._owner = owner

    def add(self, pending: Pending) -> None:
        """Append messages, which follow all others of their partition."""
        self._others.add(pending)

    def reached_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that a partition is read up to `offset`, its last stable offset."""
        self._others.reached_end(partition, offset)

    def is_ready(self) -> bool:
        """Begin calls, and return whether a record may be run now."""
        self._runner.collect()
        self._begin_calls()
        return any(lane[0].is_complete for lane in self._lanes.values())

    def _begin_calls(self) -> None:
        begun: list[Call] = []
        while (room := self._room()) > 0 and self._others.is_ready():
            taken = self._others.take(min(TAKEN_RECORDS, room))
            plan = self._plans[taken.partition.topic]
            size_bytes = taken.size_bytes // len(taken.messages)
            name: Hashable = None if self._one_lane else taken.partition
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = deque()
            for message in taken.messages:
                flight = Flight(message, plan, self._owner, taken.membership, size_bytes)
                lane.append(flight)
                begun += flight.calls
            self._held += len(taken.messages)
            self._records[taken.partition] += len(taken.messages)
            self._bytes[taken.partition] += size_bytes * len(taken.messages)
            self._runner.hand_over(begun)
            begun = []

    def _room(self) -> int:
        room = min(self._most_records - self._held, self._runner.room(self._most_calls))
        return room if self._held else max(room, 1)

    def take(self, limit: int) -> Pending:
        """Return the next complete records of one partition, fetched under one membership."""
        name, lane = next((n, e) for n, e in self._lanes.items() if e[0].is_complete)
        first = lane[0]
        partition = TopicPartition(first.topic(), first.partition())
        taken = [*_run(lane, first, partition, limit)]
        # The next lane has its turn; one that is empty goes.
        del self._lanes[name]
        if lane:
            self._lanes[name] = lane
        self._held -= len(taken)
        self._records[partition] -= len(taken)
        self._bytes[partition] -= sum(flight.size_bytes for flight in taken)
        self._runner.release(taken)
        size_bytes = sum(flight.size_bytes + flight.result_bytes for flight in taken)
        makes_calls = self._plans[partition.topic] is not None
        messages = taken if makes_calls else [flight.message for flight in taken]
        return Pending(partition, messages, first.membership, size_bytes)

    def full(self) -> list[TopicPartition]:
        """Return the partitions with enough waiting records."""
        return self._others.full()

    def sizes(self) -> dict[TopicPartition, int]:
        """Return the estimated bytes of the waiting records, for partitions that have any."""
        sizes = self._others.sizes()
        for partition, count in self._records.items():
            if count:
                sizes[partition] = sizes.get(partition, 0) + self._bytes[partition]
        return sizes

    def clear(self) -> None:
        """Discard everything and cancel all calls; the partitions are read again."""
        self._runner.cancel(self._owner, self._flights())
        self._lanes.clear()
        self._held = 0
        self._records.clear()
        self._bytes.clear()
        self._others.clear()

    def _flights(self) -> Iterator[Flight]:
        return (flight for lane in self._lanes.values() for flight in lane)


def _run(
    lane: deque[Flight], first: Flight, partition: TopicPartition, limit: int
) -> Iterator[Flight]:
    """Remove and yield the complete records at the head of a lane."""
    for _ in range(limit):
        if not lane or not lane[0].is_complete or lane[0].membership is not first.membership:
            return
        if (lane[0].topic(), lane[0].partition()) != partition:
            return
        yield lane.popleft()


def with_calls(
    queue: Queue, compiled: CompiledPart, runner: CallRunner | None, effects: object | None = None
) -> Queue:
    """Return the queue of a task, in which records wait for their calls if there are any.

    Args:
        queue: chooses the order of its records.
        compiled: its sub-topology.
        runner: of its worker; None: no sub-topology makes calls.
        effects: of the task; None: it has none.
    """
    plans = {topic: source.calls for topic, source in compiled.sources.items()}
    if runner is None or not any(plans.values()):
        return queue
    one_lane = has_state(compiled.part) and len(compiled.sources) > 1
    owner = object() if effects is None else effects
    return CallQueue(queue, plans, runner, owner, one_lane=one_lane)
