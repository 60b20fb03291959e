"""The topology of a soak: what each number has to become, and the function that makes it so.

Every call of the function has an id of its own, which its outputs carry and its process's journal
lists: so two calls for one input are told apart, whichever of them becomes visible.

Some numbers are trouble by themselves: the function is slow with them, their outputs are large, or
larger than their topics take, so that the brokers refuse them and the input is skipped.
"""

from __future__ import annotations

import base64
import os
import random
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SIDES = ("left", "right")
"""The output topics, after the application's name."""

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  spread:
    from: numbers
    on_error: skip
    steps: [{flat_map: "tests.soak.effects:spread"}]
    to:
      - {topic_from: "tests.soak.effects:chosen", topics: [NAME.left, NAME.right], value: json}
"""


SLOW, SLOW_SECONDS = 331, 0.25
"""Of so many numbers one takes so long."""

LARGE, LARGE_BYTES = 499, 300_000
"""Of so many numbers one has outputs of so many bytes."""

REFUSED, REFUSED_BYTES = 5003, 1_500_000
"""Of so many numbers one has outputs that are larger than topics take by default."""


class Effect(NamedTuple):
    """One output that an input has to have."""

    side: str
    key: bytes


def expected_effects(number: int) -> list[Effect]:
    """Return the outputs of an input: none, two or three, in both topics and several partitions."""
    return [] if _padding(number) == REFUSED_BYTES else _effects(number)


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


def spread(record: Any) -> Iterator[Any]:
    """Make the outputs of an input; called by the worker."""
    attempt = _journal(os.getpid()).begin(record.partition, record.offset)
    number = record.value["n"]
    if number % SLOW == 0:
        time.sleep(SLOW_SECONDS)
    for index, effect in enumerate(_effects(number)):
        made = {
            "partition": record.partition,
            "offset": record.offset,
            "index": index,
            "attempt": attempt,
            "side": effect.side,
            "padding": _noise(number),
        }
        yield record.replace(key=effect.key, value=made)


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
