"""One task of a topology with its stores in memory: records go in, outputs come out.

Commits, aborts and restarts are said by the test. What was sent since the last commit is kept, so
that a transaction can be dropped and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.operators.store_transaction import Limits, WholeTopic
from eosframework.engine.stores.state_ports import Reached, StoreIdentity
from eosframework.engine.task.open_state import OpenState
from eosframework.state.memory import MemoryState
from eosframework.testing import Sent
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Emit
from eosframework.topology.resolve.resolve import resolve


@dataclass(frozen=True)
class Acknowledged:
    """What a delivery report tells of a changelog record."""

    offset_: int

    def offset(self) -> int:
        return self.offset_


Out = tuple[str, Any, Any, int]
"""Topic, key, value and timestamp of an output."""


def compiled_task(topology: Topology) -> CompiledPart:
    """The first sub-topology of a topology, compiled."""
    return compile_part(resolve(topology.loaded()).sub_topologies[0])


class OneTask:
    """Runs a sub-topology; keys are text, values JSON."""

    def __init__(
        self,
        compiled: CompiledPart,
        topics: Mapping[str, WholeTopic] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.compiled = compiled
        self.part = compiled.part
        self.failures = FailureHandler()
        self.stream_time = 0
        self.sent: list[Sent] = []
        self.last_out: list[Any] = []
        self._topics = topics or {}
        self._limits = limits
        identities = [StoreIdentity(s.name, s.name, LAYOUT) for s in self.part.stores]
        self.stores = MemoryState().open("task-0", 1, identities)
        self._committed_time = 0
        self._changelog = 0
        self.changelog_bytes = 0
        self.restart()

    def restart(self) -> None:
        """Open the task anew, as another process would."""
        self.state = OpenState(self.compiled, 0, self.stores, self._topics, self._limits)
        self.stream_time = self._committed_time
        self.sent = []

    def send(self, topic: str, key: str | None, value: Any, time: int) -> list[Out]:
        """Run one record and return what it gives."""
        message = Sent(
            topic,
            None if value is None else orjson.dumps(value),
            None if key is None else key.encode(),
            time,
            len(self.sent),
            None,
        )
        self.sent.append(message)
        return self._run(message)

    def commit(self) -> list[Out]:
        """Commit, and return what goes out because of that."""
        out: list[Any] = []
        self.state.windows.begin()
        for emission in self.compiled.emissions:
            if emission.node.emit is Emit.COMMIT:
                messages = self.state.emitted(emission, self.stream_time)
                emission.run(messages, out, self.stream_time, self.failures, self.state)
        self.state.windows.remove_ended(self.stream_time)
        for output in self.state.changelog(self.stream_time):
            self._changelog += 1
            self.changelog_bytes += len(output[1] or b"")
            if output[4] is not None:
                output[4](None, Acknowledged(self._changelog))
        self.state.committed(Reached(self._changelog, {}))
        self._committed_time = self.stream_time
        self.sent = []
        return self._decoded(out)

    def abort_and_replay(self) -> list[list[Out]]:
        """Drop the open transaction and run its records again."""
        self.state.drop()
        self.stream_time = self._committed_time
        return [self._run(message) for message in self.sent]

    def before_failure(self) -> list[Out]:
        """What came of the last record before something failed."""
        return self._decoded(self.last_out)

    def held(self) -> dict[str, dict[bytes, bytes]]:
        """What the stores hold."""
        return {s.name: dict(self.stores.store(s.name).scan()) for s in self.part.stores}

    def _run(self, message: Sent) -> list[Out]:
        self.last_out = out = list[Any]()
        self.state.windows.begin()
        run = self.compiled.sources[message.topic()].run
        self.stream_time = run([message], out, self.stream_time, self.failures, self.state)
        return self._decoded(out)

    def _decoded(self, out: list[Any]) -> list[Out]:
        return [
            (
                topic,
                None if key is None else key.decode(),
                None if value is None else orjson.loads(value),
                time,
            )
            for topic, value, key, _, _, _, time, _ in out
        ]
