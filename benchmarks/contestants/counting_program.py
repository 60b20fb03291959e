"""Counts per key by hand, with and without windows: state in RocksDB, changes in a changelog.

State is what a transaction changed over what was committed before; after the commit it goes into
RocksDB in one batch with its position in the changelog. Nothing is restored, and windows that have
ended stay.

`BENCH_EMIT` and `BENCH_CHANGELOG` say what is written of a key: `each` update (the default for what
goes out), or the last one of a transaction (`commit`, the default for the changelog).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from typing import Any

from rocksdict import Options, Rdict, WriteBatch

from benchmarks.contestants.handwritten_loop import PARTITIONS, Steps, Task

POSITION = b"\x00position"
WINDOW_MS = 10_000
TARGET, CHANGELOG = os.environ["BENCH_OUTPUT"], os.environ["BENCH_CHANGELOG_TOPIC"]
EMIT_EACH = os.environ.get("BENCH_EMIT", "each") == "each"
LOG_EACH = os.environ.get("BENCH_CHANGELOG", "commit") == "each"

_COUNT = struct.Struct(">q")
_ENTRY = struct.Struct(">BQq")

Entry = tuple[int, int, int]
"""The version, the timestamp and the count."""


class Counts:
    """The store of one partition, and what the open transaction changed."""

    def __init__(self, path: str) -> None:
        self.changed: dict[bytes, Entry] = {}
        self._store = Rdict(path, Options(raw_mode=True))
        self._known: dict[bytes, Entry] = {}
        self._position = 0

    def before(self, key: bytes) -> Entry | None:
        """Return what was committed."""
        if key in self._known:
            return self._known[key]
        data = self._store.get(key)
        return None if data is None else _ENTRY.unpack(data)

    def delivered(self, _: object, message: Any) -> None:
        self._position = message.offset() + 1

    def write(self) -> None:
        batch = WriteBatch(raw_mode=True)
        pack = _ENTRY.pack
        for key, entry in self.changed.items():
            batch[key] = pack(*entry)
        batch[POSITION] = _COUNT.pack(self._position)
        self._store.write(batch)
        self._known.update(self.changed)
        self.changed.clear()


def steps(discipline: str) -> Steps:
    """Return how `count` or `window` is done."""
    directory, name = os.environ["BENCH_STATE_DIRECTORY"], os.environ["BENCH_APPLICATION"]
    os.makedirs(directory, exist_ok=True)
    stores = [Counts(f"{directory}/{name}-{number}") for number in range(PARTITIONS)]

    def written(task: Task) -> None:
        task.producer.poll(0)
        stores[task.partition].write()

    convert = _counting(stores) if discipline == "count" else _counting_in_windows(stores)
    return Steps(convert, _sending(stores), written)


def _counting(stores: list[Counts]) -> Callable[[Task, Iterable[Any]], None]:
    from orjson import loads

    target, changelog, emit, log = TARGET, CHANGELOG, EMIT_EACH, LOG_EACH
    pack_count, pack = _COUNT.pack, _ENTRY.pack

    def count(task: Task, messages: Iterable[Any]) -> None:
        partition, produce = task.partition, task.producer.produce
        changed, before = stores[partition].changed, stores[partition].before
        for message in messages:
            loads(message.value())
            key, at = message.key(), message.timestamp()[1]
            entry = changed.get(key) or before(key)
            if entry is None:
                entry = 1, at, 1
            else:
                _, latest, counted = entry
                entry = 1, at if at > latest else latest, counted + 1
            changed[key] = entry
            if emit:
                produce(target, pack_count(entry[2]), key, -1, None, None, entry[1])
            if log:
                produce(changelog, pack(*entry), key, partition, None, None, at)

    return count


def _counting_in_windows(stores: list[Counts]) -> Callable[[Task, Iterable[Any]], None]:
    from orjson import loads

    target, pack_start = TARGET, _COUNT.pack

    def count(task: Task, messages: Iterable[Any]) -> None:
        produce = task.producer.produce
        changed, before = stores[task.partition].changed, stores[task.partition].before
        for message in messages:
            loads(message.value())
            key, at = message.key(), message.timestamp()[1]
            start = at - at % WINDOW_MS
            place = key + pack_start(start)
            entry = changed.get(place) or before(place)
            counted = entry[2] + 1 if entry else 1
            changed[place] = 1, at, counted
            result = b'{"start":%d,"end":%d,"value":%d}' % (start, start + WINDOW_MS, counted)
            produce(target, result, key, -1, None, None, at)

    return count


def _sending(stores: list[Counts]) -> Callable[[Task], None]:
    """Return what goes out at the commit; the last record tells where the changelog ends."""
    target, changelog = TARGET, CHANGELOG
    pack_count, pack = _COUNT.pack, _ENTRY.pack

    def send(task: Task) -> None:
        produce, partition = task.producer.produce, task.partition
        counts = stores[partition]
        if not EMIT_EACH:
            for key, (_, at, counted) in counts.changed.items():
                produce(target, pack_count(counted), key, -1, None, None, at)
        entries = list(counts.changed.items())
        for key, entry in () if LOG_EACH else entries:
            produce(changelog, pack(*entry), key, partition, None, None, entry[1])
        key, entry = entries[-1]
        produce(changelog, pack(*entry), key, partition, counts.delivered, None, entry[1])

    return send
