"""The databases of a process share its memory, however many they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from eosframework.state.rocksdb_backend import RocksState, RocksTaskStores
from tests.support.applications.pipeline import wait_until
from tests.support.applications.stores import COUNTS, SMALL_CACHE_BYTES

MakeRocks = Callable[..., RocksState]

TASKS = 24
BUFFERS_BYTES = SMALL_CACHE_BYTES // 3


def write(stores: RocksTaskStores, draw: random.Random, size_bytes: int) -> None:
    entries = [(draw.randbytes(20), bytes(480)) for _ in range(size_bytes // 500)]
    stores.write({"counts": entries}, {"counts": (stores.position("counts") or 0) + 1})


def buffered(tasks: list[RocksTaskStores]) -> int:
    return sum(size.memory_bytes for task in tasks for size in task.stats())


def files_so_far(task: RocksTaskStores) -> int:
    """Return how many files a database has had; they are numbered."""
    return max((int(file.stem) for file in task.directory.glob("*.sst")), default=0)


def test_what_many_tasks_have_written_stays_within_the_memory_for_it(
    make_rocks: MakeRocks,
) -> None:
    draw = random.Random(1)
    state = make_rocks()
    tasks = [state.open(f"late-{number}", TASKS, [COUNTS]) for number in range(TASKS)]
    for _ in range(10):
        for task in tasks:
            write(task, draw, 100_000)
        wait_until(lambda: buffered(tasks) < BUFFERS_BYTES, "buffers within their share")


def test_a_task_that_writes_little_is_not_made_to_write_files_by_those_that_are_idle(
    make_rocks: MakeRocks,
) -> None:
    draw = random.Random(1)
    state = make_rocks()
    idle = [state.open(f"late-{number}", TASKS, [COUNTS]) for number in range(1, TASKS)]
    for task in idle:
        write(task, draw, 350_000)
    busy = state.open("late-0", TASKS, [COUNTS])

    for _ in range(300):
        write(busy, draw, 1000)

    assert files_so_far(busy) < 200
    assert sum(len(list(task.directory.glob("*.sst"))) for task in idle) > 0


def test_a_key_that_is_nowhere_costs_no_reading_however_many_keys_a_file_has(
    make_rocks: MakeRocks,
) -> None:
    keys = [b"%010d" % (number * 2654435761 % 2**32) for number in range(1_000_000)]
    stores = make_rocks().open("many-0", 1, [COUNTS])
    for first in range(0, len(keys), 10_000):
        changes = [(key, b"") for key in keys[first : first + 10_000]]
        stores.write({"counts": changes}, {"counts": first + 1})
    wait_until(lambda: largest_file_bytes(stores) > 5_000_000, "files of many keys")
    get = stores.store("counts").get
    absent = [key + b"x" for key in keys[::2000]]
    for key in absent:
        assert get(key) is None

    def is_cheap() -> bool:
        before = bytes_read()
        for key in absent:
            get(key)
        return (bytes_read() - before) / len(absent) < 20_000

    # Files that are being merged are read by this process as well, until they are.
    wait_until(is_cheap, "looks that read less than 20,000 bytes each")


def largest_file_bytes(task: RocksTaskStores) -> int:
    sizes: list[int] = []
    for file in task.directory.glob("*.sst"):
        with suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return max(sizes, default=0)


def bytes_read() -> int:
    """Return how much this process has read, from files or from what the system has of them."""
    return int(Path("/proc/self/io").read_text().split()[1])
