"""Other threads read the stores of a task while its worker writes, moves and closes them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eosframework.engine.stores.shared_stores import SharedStores, StoresGone
from eosframework.engine.stores.state_ports import StateBackend
from eosframework.serialization.bounds import SCAN_BYTES
from tests.support.applications.pipeline import wait_until
from tests.support.applications.stores import COUNTS, TASK

ENTRIES = 2000


@pytest.fixture(autouse=True)
def threads_take_quick_turns() -> Iterator[None]:
    """So that they meet in places where they seldom do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def open_shared(backend: StateBackend, shared: SharedStores) -> Any:
    stores = shared.share("counts", 0, backend.open(TASK, 4, [COUNTS]))
    shared.mark_up_to_date("counts", 0)
    return stores


@contextmanager
def readers(shared: SharedStores, look: Callable[[Any], None], count: int = 4) -> Iterator[Any]:
    """Let threads look again and again for the length of a block; fail if one of them did."""
    looks, found, over = [0] * count, list[BaseException](), threading.Event()

    def read(number: int) -> None:
        while not over.is_set():
            try:
                look(shared.content("counts", 0, "counts"))
            except StoresGone:
                continue
            except BaseException as error:
                found.append(error)
                return
            looks[number] += 1

    threads = [threading.Thread(target=read, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: min(looks)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert found == []


def test_a_scan_beside_writes_shows_one_moment(backend: StateBackend) -> None:
    shared = SharedStores()
    stores = open_shared(backend, shared)

    def write(number: int) -> None:
        value = b"%d" % number
        entries = [(b"%06d" % key, value) for key in range(ENTRIES)]
        stores.write({"counts": entries}, {"counts": number + 1})

    def look(content: Any) -> None:
        entries = list(content.scan())
        assert len(entries) == ENTRIES
        assert len({value for _, value in entries}) == 1
        assert content.get(b"000007") is not None

    write(0)
    with readers(shared, look) as least:
        numbers = iter(range(1, 10**9))

        def enough() -> bool:
            write(next(numbers))
            return least() >= 5

        wait_until(enough, "five looks of every reader")
    stores.close()


def test_a_task_that_comes_and_goes_beside_readers_can_always_be_opened_again(
    backend: StateBackend,
) -> None:
    """A reader that kept the files open would let the next open fail."""
    shared = SharedStores()

    def look(content: Any) -> None:
        entries = list(content.scan())
        assert {value for _, value in entries} <= {b"v"}
        content.get(b"000007")

    entries = [(b"%06d" % key, b"v") for key in range(ENTRIES)]
    with readers(shared, look) as least:
        for number in range(25):
            stores = open_shared(backend, shared)
            stores.write({"counts": entries}, {"counts": number + 1})
            seen = least()
            wait_until(lambda seen=seen: least() > seen, "a look of every reader")
            if number % 2:
                stores.clear("counts")
            stores.close()
    with pytest.raises(StoresGone):
        shared.content("counts", 0, "counts")
    assert shared.partitions("counts") == {}


def test_a_scan_ends_where_the_task_is_given_up(backend: StateBackend) -> None:
    shared = SharedStores()
    stores = open_shared(backend, shared)
    entries = [(b"%06d" % key, b"v") for key in range(ENTRIES)]
    stores.write({"counts": entries}, {"counts": 1})
    scan = shared.content("counts", 0, "counts").scan()
    assert next(scan) == (b"000000", b"v")
    stores.close()
    with pytest.raises(StoresGone):
        list(scan)
    again = open_shared(backend, shared)
    again.close()


@pytest.mark.parametrize(("more", "held"), [(-1, 5), (0, 4), (1, 4)])
def test_a_scan_holds_a_bounded_number_of_bytes(
    more: int, held: int, backend: StateBackend
) -> None:
    shared = SharedStores()
    stores = open_shared(backend, shared)
    value = b"v" * (SCAN_BYTES.value // 4 - len(b"000000"))
    entries = [(b"%06d" % key, value) for key in range(10)]
    entries[1] = (b"000001", value + b"v" * more if more > 0 else value[: len(value) + more])
    stores.write({"counts": entries}, {"counts": 1})
    scan = shared.content("counts", 0, "counts").scan()
    next(scan)  # read on its own
    next(scan)
    stores.close()
    rest: list[Any] = []
    with pytest.raises(StoresGone):
        rest.extend(scan)
    assert len(rest) + 1 == held
