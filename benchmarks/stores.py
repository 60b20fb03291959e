"""`stores`: the stores on disk by themselves: writes, reads, a start after `kill -9`, memory.

Entries are those of a count per key: 20 bytes of key, 30 of value, in no order of the keys.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil

from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.config import StateSettings
from eosframework.engine.stores.state_ports import StoreIdentity, TaskStores
from eosframework.state.rocksdb_backend import RocksState

DEFAULT_KEYS = 1_000_000
MANY_KEYS = 10_000_000
BATCH_ENTRIES = 10_000
READS = 100_000
COUNTS = StoreIdentity("counts", changelog="id", schema_version=1)

Entries = list[tuple[bytes, bytes | None]]


def run(session: Session, options: Options, report: Report) -> None:
    """Measure with one million keys, and memory with ten."""
    keys = options.records or DEFAULT_KEYS
    directory = session.directory / "stores"
    speed = _in_child("speed", directory / "speed", keys)
    start = _in_child("start", directory / "start", keys)
    memory = _in_child("memory", directory / "memory", options.records or MANY_KEYS)
    rows = [
        ("restore, entries/s", f"{speed['restored_per_second']:,.0f}", "> 400,000"),
        ("write of 1000 entries, ms", f"{speed['write_ms']:.2f}", "< 3"),
        ("read of one of 1000 hot keys, µs", f"{speed['hot_us']:.2f}", "< 2.5"),
        ("read of any key, µs", f"{speed['any_us']:.2f}", ""),
        ("read of an absent key, µs", f"{speed['absent_us']:.2f}", ""),
        ("entry of a scan, µs", f"{speed['scan_us']:.2f}", ""),
        ("open after kill -9, s", f"{start['open_seconds']:.2f}", "< 1"),
        (f"resident with {memory['keys']:,} keys, MB", f"{memory['peak_megabytes']:.0f}", ""),
        ("of it before the first store, MB", f"{memory['base_megabytes']:.0f}", ""),
    ]
    table = Table(f"Stores with {keys:,} keys", ("what", "measured", "goal"), rows)
    report.add("stores", table, {"speed": speed, "start": start, "memory": memory})


def _in_child(case: str, directory: Path, keys: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.stores", case, str(directory), str(keys)]
    return orjson.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def key(number: int) -> bytes:
    """Return the number's key: their order has nothing to do with that of the numbers."""
    return b"%020d" % (number * 2654435761 % 2**32)


def entries(first: int, count: int) -> Entries:
    """Return entries as they come in the order of a changelog."""
    return [(key(n), b"%030d" % n) for n in range(first, first + count)]


def open_stores(directory: Path) -> TaskStores:
    """Open the store with the default settings."""
    state = RocksState(StateSettings(directory=directory), "bench", "slot")
    return state.open("counts-0", 4, [COUNTS])


def fill(stores: TaskStores, keys: int) -> Iterator[float]:
    """Write all keys in batches; yield the seconds that each took."""
    for first in range(0, keys, BATCH_ENTRIES):
        batch = entries(first, BATCH_ENTRIES)
        began = time.perf_counter()
        stores.write({"counts": batch}, {"counts": first + BATCH_ENTRIES})
        yield time.perf_counter() - began


def speed(directory: Path, keys: int) -> dict[str, float]:
    """Measure restore, reads, scans and small writes."""
    stores = open_stores(directory)
    restored = sum(fill(stores, keys))
    store = stores.store("counts")
    draw = random.Random(1)
    hot = [key(draw.randrange(1000)) for _ in range(READS)]
    anywhere = [key(draw.randrange(keys)) for _ in range(READS)]
    absent = [key(keys + draw.randrange(keys)) for _ in range(READS)]
    writes = [_small_write(stores, draw, keys) for _ in range(200)]
    return {
        "restored_per_second": keys / restored,
        "write_ms": sorted(writes)[len(writes) // 2] * 1000,
        "hot_us": _read(stores, hot),
        "any_us": _read(stores, anywhere),
        "absent_us": _read(stores, absent),
        "scan_us": _timed(lambda: sum(1 for _ in store.scan())) / keys * 1e6,
    }


def _small_write(stores: TaskStores, draw: random.Random, keys: int) -> float:
    batch: Entries = [(key(draw.randrange(keys)), bytes(30)) for _ in range(1000)]
    return _timed(lambda: stores.write({"counts": batch}, {"counts": keys}))


def _read(stores: TaskStores, keys: list[bytes]) -> float:
    get = stores.store("counts").get
    best = min(_timed(lambda: [get(each) for each in keys]) for _ in range(3))
    return best / len(keys) * 1e6


def _timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def start(directory: Path, keys: int) -> dict[str, float]:
    """Measure how long a store takes to open whose process was killed at its last write."""
    pid = os.fork()
    if pid == 0:
        for _ in fill(open_stores(directory), keys):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    began = time.perf_counter()
    stores = open_stores(directory)
    seconds = time.perf_counter() - began
    if stores.position("counts") != keys:
        raise AssertionError(f"{keys} were written, and the position is not there")
    return {"open_seconds": seconds}


def memory(directory: Path, keys: int) -> dict[str, float]:
    """Measure resident memory while all keys are written and read at random, then read again."""
    process = psutil.Process()
    stores = open_stores(directory)
    base = peak = process.memory_info().rss
    draw = random.Random(1)
    store = stores.store("counts")
    for number, _ in enumerate(fill(stores, keys), 1):
        for _ in range(100):
            store.get(key(draw.randrange(number * BATCH_ENTRIES)))
        peak = max(peak, process.memory_info().rss)
    for _ in range(10):
        for _ in range(READS):
            store.get(key(draw.randrange(keys)))
        stores.write({"counts": entries(draw.randrange(keys), 1000)}, {"counts": keys})
        peak = max(peak, process.memory_info().rss)
    return {"keys": keys, "base_megabytes": base / 1e6, "peak_megabytes": peak / 1e6}


CASES = {"speed": speed, "start": start, "memory": memory}

if __name__ == "__main__":
    case, directory, keys = sys.argv[1:]
    sys.stdout.buffer.write(orjson.dumps(CASES[case](Path(directory), int(keys))))
