"""Records of a soak that no worker can process, whoever wrote them: each becomes a dead letter."""

from __future__ import annotations

import random

from confluent_kafka import Producer

from tests.soak.effects import key_of

MARK = "hostile"
"""Name of the header by which the reader of the input knows them."""

VALUES = (
    b"",
    b"[]",
    b"9" * 5000,
    b'{"n": ',
    b'{"n": "\xff"}',
    b'{"n": NaN}',
    b'{"n": null}',
    b'{"n": [1]}',
    b'{"n": "\\ud800"}',
    b'{"m": 1}',
    b"[" * 200_000,
)
"""None is too large for a topic: `replay --all` would refuse it in the replay topic."""

FAILURES = (
    "raise surrogate",
    "raise nul",
    "raise escape",
    "raise unspeakable",
    "exit",
    "stop",
    "recursion",
    "memory",
)
"""What the function does, as tests/hostile/functions.py has it."""

HEADERS: tuple[list[tuple[str, bytes | None]], ...] = (
    [],
    [("h", None), ("", bytes(range(256)))],
    [("__streams.errors.topic", b"\xff"), ("__streams.errors.offset", b"9" * 5000)],
    [("__eos.errors.attempts", b"9" * 5000), ("__eos.errors.form", b"gzip")],
    [("__eos.receipt", b"1/a/0/b/0/" + b"9" * 5000 + b"/0/1/0/0/1"), ("traceparent", b"\xff")],
)


class HostileProducer:
    """Writes hostile records under the keys of healthy ones.

    Args:
        percent: of the numbers that are replaced by one.
    """

    def __init__(self, client: dict[str, object], topic: str, percent: float, seed: int) -> None:
        self._topic = topic
        self._percent = percent
        self._chance = random.Random(seed)
        self.producer = Producer({**client, "compression.type": "zstd"})

    def replaces(self, number: int) -> bool:
        """Write a hostile record in a number's place, or return False."""
        if self._chance.random() * 100 >= self._percent:
            return False
        headers = [*self._chance.choice(HEADERS), (MARK, b"")]
        self.producer.produce(self._topic, self._value(number), key_of(number), headers=headers)
        self.producer.poll(0)
        return True

    def _value(self, number: int) -> bytes:
        if self._chance.random() < 0.5:
            return self._chance.choice(VALUES)
        return b'{"n": %d, "do": "%b"}' % (number, self._chance.choice(FAILURES).encode())
