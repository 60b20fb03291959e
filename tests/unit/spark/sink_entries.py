"""The entries of a sink in a control topic that is in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson

from eosframework.spark.sinks.sink_entry import ShardProgress, SinkBatch
from eosframework.transactions.ports import Output
from tests.support.memory.scripted_kafka import Broker

CONTROL = "app-control"

E = TypeVar("E", SinkBatch, ShardProgress)


@dataclass
class MemoryEntries(Generic[E]):
    """A TaskLog over what is visible of the control topic.

    Args:
        kind: of the entries.
        first: sequence of the first batch whose entries count.
    """

    broker: Broker
    kind: type[E]
    first: int = 1

    def read(self) -> E | None:
        return self.watch()

    def watch(self) -> E | None:
        found = [orjson.loads(o[1] or b"") for o in self.broker.visible if o[0] == CONTROL]
        entries = [e for e in map(self.kind.from_entry, found) if e.sequence >= self.first]
        return entries[-1] if entries else None

    def written_end(self) -> int:
        return sum(output[0] == CONTROL for output in self.broker.visible)

    def newest(self, since: int = 0) -> tuple[int, E] | None:
        found, last = self.watch(), self.written_end() - 1
        return None if found is None or last < since else (last, found)

    def output(self, progress: E) -> Output:
        return (CONTROL, orjson.dumps(progress.to_entry()), b"entry", 0, None, None, 0, None)
