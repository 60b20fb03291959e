"""Answers of /state with large values are bounded in bytes, and so is the memory that they take."""

from __future__ import annotations

import json
import resource
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from multiprocessing import get_context
from multiprocessing.connection import Connection

from eosframework import Topology
from eosframework.bounds import STATE_BYTES
from eosframework.kafka.client.partitioner import partition_of
from eosframework.monitoring.http.http_server import serving
from eosframework.monitoring.http.state_pages import StatePages
from eosframework.operators.binding import format_of
from eosframework.processing.stores.shared_stores import SharedStores
from eosframework.processing.stores.state_ports import StoreIdentity
from eosframework.state import MemoryState
from eosframework.topology.resolve.resolve import resolve

VALUE = 900_000
ROWS = 1000
CLIENTS = 8
MEGABYTES = 200
"""What the answers may take. All rows of all answers are 7,200 MB."""


def serve(ready: Connection) -> None:
    """Serve a store of large values until the other side says so, and tell the memory it took."""
    app = Topology("large")
    app.stream("in", key=str, value=str).group_by_key().reduce(max, store="kept").to("out")
    graph = resolve(app.loaded())
    (part,) = graph.sub_topologies
    (store,) = part.stores
    shared = SharedStores()
    opened = MemoryState().open("in-0", 1, [StoreIdentity(store.name, "id", 1)])
    task = shared.share(part.name, 0, opened)
    entry = format_of(store).encode(("x" * VALUE, 1000))
    task.write({store.name: [(f"{n:04}".encode(), entry) for n in range(ROWS)]}, {store.name: 1})
    shared.is_up_to_date(part.name, 0)
    pages = StatePages(graph, shared, {part.name: 1}, partition_of)
    with serving("127.0.0.1:0", {"state": pages.page}) as address:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ready.send(address)
        ready.recv()
        ready.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def scan(address: str) -> tuple[int, bool, str]:
    """Return the size of the answer to the largest scan, its `more`, and its last key."""
    connection = HTTPConnection(address, timeout=120)
    connection.request("GET", f"/state/kept?limit={ROWS}")
    content = connection.getresponse().read()
    connection.close()
    answer = json.loads(content)
    return len(content), answer["more"], answer["found"][-1]["key"]


def test_parallel_scans_of_large_values_take_bounded_memory() -> None:
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    try:
        address = ours.recv()
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = [clients.submit(scan, address) for _ in range(CLIENTS)]
            sizes = {answer.result() for answer in answers}
        ours.send("end")
        kilobytes = ours.recv()
    finally:
        process.join(60)
        process.kill()
    assert len(sizes) == 1
    [(size, more, _)] = sizes
    assert STATE_BYTES.value < size < STATE_BYTES.value + 2 * VALUE
    assert more
    assert kilobytes < MEGABYTES * 1000, f"{kilobytes / 1000:.0f} MB"
