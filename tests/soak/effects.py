"""The topology of a soak: what each number has to become, and the function that makes it so.

Every call of the function has an id of its own, which its outputs carry and its process's journal
lists: so two calls for one input are told apart, whichever of them becomes visible.

The function keeps a total for each key, and every output carries the total that its input made.
The outputs show a store that was ahead of the committed offsets, behind them, damaged, or changed
by a transaction that was aborted.

Some numbers are trouble by themselves: the function is slow with them, their outputs are large, or
larger than their topics take, so that the brokers refuse them. Such an input becomes a dead letter,
as a hostile one does (tests/soak/hostile.py), and leaves no trace in its key's total.
"""

from __future__ import annotations

import base64
import os
import random
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.hostile.functions import act

SIDES = ("left", "right")
"""The output topics, after the application's name."""

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  spread:
    from: numbers
    on_error: {dead_letter: NAME.dead}
    steps:
      - process: {call: "tests.soak.effects:spread", stores: {totals: {value: json}}}
    to:
      - {topic_from: "tests.soak.effects:chosen", topics: [NAME.left, NAME.right], value: json}
"""

STORE = "spread.totals"
"""The store of the totals, as its changelog topic calls it."""

KEYS = 40
"""So many keys have a total."""

SLOW, SLOW_SECONDS = 331, 0.25
"""Of so many numbers one takes so long."""

LARGE, LARGE_BYTES = 499, 300_000
"""Of so many numbers one has outputs of so many bytes."""

REFUSED, REFUSED_BYTES = 5003, 1_500_000
"""Of so many numbers one has outputs that are larger than topics take by default."""


HOSTILE = -1
"""Stands for an input that is no number."""


class Effect(NamedTuple):
    """One output that an input has to have."""

    side: str
    key: bytes


class Total(NamedTuple):
    """The state of a key."""

    count: int
    sum: int

    def add(self, number: int) -> Total:
        """Return the total after one more input."""
        return Total(self.count + 1, self.sum + number)


def key_of(number: int) -> bytes:
    """Return the key of an input."""
    return b"%d" % (number % KEYS)


def expected_effects(number: int) -> list[Effect]:
    """Return the outputs of an input: none, two or three, in both topics and several partitions."""
    return [] if is_dead(number) else _effects(number)


def expected_totals(numbers: Sequence[int]) -> list[Total]:
    """Return the total of its key behind each input of a partition."""
    totals: dict[bytes, Total] = {}
    found: list[Total] = []
    for number in numbers:
        key = key_of(number)
        before = totals.get(key, Total(0, 0))
        totals[key] = before if is_dead(number) else before.add(number)
        found.append(totals[key])
    return found


def is_dead(number: int) -> bool:
    """Tell whether an input becomes a dead letter: a hostile one, or its outputs are refused."""
    return number == HOSTILE or (_padding(number) == REFUSED_BYTES and bool(_effects(number)))


def _effects(number: int) -> list[Effect]:
    if number % 5 == 0:
        return []
    effects = [Effect("left", b"l%d" % (number % 7)), Effect("right", b"r%d" % (number % 11))]
    return effects if number % 3 else [*effects, Effect("left", b"x%d" % (number % 13))]


def _padding(number: int) -> int:
    """Return by how many bytes an input's outputs are larger than they need to be."""
    if number % REFUSED == REFUSED - 1:
        return REFUSED_BYTES
    return LARGE_BYTES if number % LARGE == 1 else 0


def _noise(number: int) -> str:
    """Return the padding of an input's outputs, which no codec makes much smaller."""
    data = random.Random(number).randbytes(_padding(number) * 3 // 4)
    return base64.b64encode(data).decode()


def spread(record: Any, context: Any) -> list[Any]:
    """Add an input to its key's total, and make its outputs; called by the worker."""
    attempt = _journal(os.getpid()).begin(record.partition, record.offset)
    number = record.value["n"]
    store = context.store("totals")
    total = Total(**store.get(record.key, {"count": 0, "sum": 0})).add(number)
    store.put(record.key, total._asdict())
    if "do" in record.value:
        act(record)
    if number % SLOW == 0:
        time.sleep(SLOW_SECONDS)
    made = {
        "partition": record.partition,
        "offset": record.offset,
        "attempt": attempt,
        "total": list(total),
        "padding": _noise(number),
    }
    return [
        record.replace(key=effect.key, value={**made, "index": index, "side": effect.side})
        for index, effect in enumerate(_effects(number))
    ]


def chosen(record: Any) -> str:
    """Return the topic of an output; called by the worker."""
    return f"{record.topic.removesuffix('.in')}.{record.value['side']}"


class _Journal:
    """The calls of one process, written before they return: a killed process keeps its journal."""

    def __init__(self) -> None:
        self._process = uuid.uuid4().hex[:12]
        path = Path(os.environ["EOS_TEST_FAULT_DIRECTORY"]) / f"{self._process}.journal"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._calls = 0

    def begin(self, partition: int, offset: int) -> str:
        self._calls += 1
        os.write(self._file, b"%d %d\n" % (partition, offset))
        return f"{self._process}.{self._calls}"


_journals: dict[int, _Journal] = {}


def _journal(pid: int) -> _Journal:
    """Return this process's journal; workers of one supervisor are forked."""
    if pid not in _journals:
        _journals[pid] = _Journal()
    return _journals[pid]
