"""Large values in stores: answers are bounded in bytes, and so is the memory that they take."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from eosframework.application.composition.worker import load
from eosframework.application.monitoring.http.http_server import serving
from eosframework.application.monitoring.http.state_pages import StatePages
from eosframework.application.monitoring.stores_here import StoresHere
from eosframework.engine.operators.binding import format_of
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.kafka.client.partitioner import partition_of
from eosframework.serialization.bounds import STATE_BYTES
from eosframework.state import MemoryState
from tests.support.applications.owning import sole_owner
from tests.support.processes.consoles import running_console

TOPOLOGY = """\
from eosframework import Topology

app = Topology("large")
app.stream("in", key=str, value=str).group_by_key().reduce(max, store="kept").to("out")
"""

VALUE = 900_000
ROWS = 1000
CLIENTS = 8
MEGABYTES = 200
"""What parallel answers may take. All rows of all of them are 7,200 MB."""


def serve(topology: str, ready: Connection) -> None:
    """Serve a store of large values until the other side hangs up."""
    graph = load(topology)
    (part,) = graph.sub_topologies
    (store,) = part.stores
    shared = SharedStores()
    opened = MemoryState().open("in-0", 1, [StoreIdentity(store.name, "id", 1)])
    task = shared.share(part.name, 0, opened)
    entry = format_of(store).encode(("x" * VALUE, 1000))
    task.write({store.name: [(f"{n:04}".encode(), entry) for n in range(ROWS)]}, {store.name: 1})
    shared.mark_up_to_date(part.name, 0)
    stores = StoresHere(graph, shared, {part.name: 1}, partition_of)
    pages = StatePages(graph.application, stores, sole_owner("large", {part.name: ["in"]}, 1))
    with serving("127.0.0.1:0", {"state": pages.page}) as address:
        ready.send(address)
        ready.recv()


def peak_megabytes(pid: int | None) -> float:
    """Return the most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("large") / "large.py"
    file.write_text(TOPOLOGY)
    return file


@pytest.fixture(scope="module")
def large(topology: Path) -> Iterator[tuple[str, int | None]]:
    """The address and the process of a server with large values."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(str(topology), theirs))
    process.start()
    try:
        assert ours.poll(120), "it serves"
        yield str(ours.recv()), process.pid
        ours.send("end")
        process.join(60)
    finally:
        process.kill()
        process.join()


def get(address: str, path: str) -> bytes:
    connection = HTTPConnection(address, timeout=120)
    connection.request("GET", path)
    content = connection.getresponse().read()
    connection.close()
    return content


def test_parallel_scans_of_large_values_take_bounded_memory(
    large: tuple[str, int | None],
) -> None:
    address, pid = large
    before = peak_megabytes(pid)
    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(
            clients.map(get, [address] * CLIENTS, [f"/state/kept?limit={ROWS}"] * CLIENTS)
        )
    assert len(set(answers)) == 1
    assert STATE_BYTES.value < len(answers[0]) < STATE_BYTES.value + 2 * VALUE
    found = json.loads(answers[0])
    assert found["more"]
    assert [row["key"] for row in found["found"]] == [f"{n:04}" for n in range(len(found["found"]))]
    assert peak_megabytes(pid) - before < MEGABYTES


def test_a_console_that_shows_large_values_takes_bounded_memory(
    large: tuple[str, int | None], topology: Path, tmp_path: Path
) -> None:
    nowhere = ["kafka.bootstrap_servers=127.0.0.1:9"]
    with running_console(tmp_path, topology, "--ask", large[0], settings=nowhere) as console:
        pages = [f"/state?store=kept&scan=1&source=workers&from={n:04}" for n in range(24)]
        address = console.address
        with ThreadPoolExecutor(CLIENTS) as clients:
            shown = list(clients.map(get, [address] * len(pages), pages))
        rows = [page.count(b"x" * VALUE) for page in shown]
        assert max(rows) == STATE_BYTES.value // VALUE + 1, rows
        assert b"There are more rows" in max(shown, key=len)
        assert peak_megabytes(console.process.pid) < 400
