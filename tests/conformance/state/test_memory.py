"""The databases of a process share its memory, however many they are."""

from __future__ import annotations

import random
from collections.abc import Callable

from eosframework.state.database import RocksTaskStores
from eosframework.state.rocks import RocksState
from tests.support.pipeline import wait_until
from tests.support.stores import COUNTS, SMALL_CACHE_BYTES

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
