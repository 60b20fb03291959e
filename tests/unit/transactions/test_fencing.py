"""Fencing inits every id once, with few producers at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eosframework.transactions.ports import TransactionalOutput
from eosframework.transactions.producing import FENCED_AT_ONCE, fence
from tests.support.memory.scripted_kafka import Broker, MemoryOutputs


class CountedOutputs(MemoryOutputs):
    """Outputs that count the producers that are open."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.inited: list[str] = []
        self.now_open = self.most_open = 0

    def open(self, transactional_ids: Sequence[str]) -> list[TransactionalOutput]:
        self.inited += transactional_ids
        self.now_open += len(transactional_ids)
        self.most_open = max(self.most_open, self.now_open)
        return [*super().open(transactional_ids)]

    def close(self, outputs: Iterable[TransactionalOutput]) -> None:
        closed = [*outputs]
        self.now_open -= len(closed)
        super().close(closed)


def test_hundreds_of_ids_are_fenced_by_few_producers_at_a_time() -> None:
    outputs = CountedOutputs(Broker())
    ids = [f"app:sub:{number}" for number in range(3 * FENCED_AT_ONCE + 1)]
    fence(outputs, [*ids, *ids])
    assert outputs.inited == sorted(ids)
    assert (outputs.most_open, outputs.now_open) == (FENCED_AT_ONCE, 0)
