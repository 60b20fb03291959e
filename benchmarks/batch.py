"""`batch`: numeric transformations over columns beside the same over records.

First in this process, by processor time: the functions alone, over values that are decoded, and the
compiled function of a worker, from JSON to JSON. Then a whole worker between topics.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from benchmarks.contestants import batch_topology
from benchmarks.contestants.batch_topology import FIELDS, SCHEMA, WORKS, declare
from benchmarks.contestants.framework import Framework
from benchmarks.contestants.work import Work
from benchmarks.inputs import create_topics, load
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.operators import Read
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.engine.codegen.compiler import compile_part
from eosframework.topology.resolve.resolve import resolve

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 5
IN_PROCESS_RECORDS = 100_000
BATCH_RECORDS = 2000
"""As many as a worker fetches at once."""

WAYS = ("rows", "batches")


def run(session: Session, options: Options, report: Report) -> None:
    """Measure both ways of both transformations in every round; the medians count."""
    rounds = options.rounds or DEFAULT_ROUNDS
    _in_process(rounds, report)
    records = options.records or DEFAULT_RECORDS
    topic = session.name("trips")
    create_topics(session.bootstrap_servers, topic)
    load(session.bootstrap_servers, topic, trip_records(records))
    speeds: dict[tuple[str, str], list[Speed]] = {}
    for round_number in range(rounds):
        for what in WORKS:
            for way in WAYS if round_number % 2 else reversed(WAYS):
                speed = _worker(session, topic, what, way, records)
                speeds.setdefault((what, way), []).append(speed)
                rate = speed.records_per_second
                report.progress(f"batch: {what} by {way} {rate:,.0f} records/s")
    _report_speeds(report, speeds, records)


def _report_speeds(
    report: Report, speeds: dict[tuple[str, str], list[Speed]], records: int
) -> None:
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for what in WORKS:
        rates = {way: [s.records_per_second for s in speeds[what, way]] for way in WAYS}
        ratio = statistics.median(b / r for r, b in zip(*rates.values(), strict=True))
        data[what] = {"records_per_second": rates, "ratio": ratio}
        for way, found in rates.items():
            cpu = statistics.median(s.cpu_microseconds_per_record for s in speeds[what, way])
            shown = f"{ratio:.2f}" if way == "batches" else ""
            spread = f"{min(found):,.0f} to {max(found):,.0f}"
            rows.append(
                (f"{what}, {way}", f"{statistics.median(found):,.0f}", spread, f"{cpu:.2f}", shown)
            )
    table = Table(
        f"A worker between topics, {records:,} records",
        ("what", "records/s", "spread", "CPU µs/record", "ratio, median of rounds"),
        rows,
    )
    report.add("batch", table, data)


def trip_records(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Give keys with JSON values of nine numbers, the same ones every time."""
    source = random.Random(8)
    for number in range(count):
        value = {"trip": number} | {name: round(source.uniform(1, 80), 5) for name in FIELDS}
        yield b"%d" % (number % 1000), orjson.dumps(value)


def _worker(session: Session, topic: str, what: str, way: str, records: int) -> Speed:
    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        speed = speed_of_input(offsets, child, records)
        child.stop()
        return speed

    contestant = Framework(
        f"{what}, {way}",
        environment={"BENCH_WHAT": what, "BENCH_WAY": way},
        topology=Path(batch_topology.__file__),
    )
    return session.run(contestant, topic, measure)


def _in_process(rounds: int, report: Report) -> None:
    made = list(islice(trip_records(IN_PROCESS_RECORDS), IN_PROCESS_RECORDS))
    messages = [Read(("in", key, value, n, n)) for n, (key, value) in enumerate(made)]
    slices = [
        messages[start : start + BATCH_RECORDS] for start in range(0, len(messages), BATCH_RECORDS)
    ]
    works = _works(slices)
    costs: dict[tuple[str, str], list[float]] = {name: [] for name in works}
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    for _ in range(rounds):
        for name, work in works.items():
            began = time.thread_time_ns()
            for one in work:
                one()
            costs[name].append((time.thread_time_ns() - began) / len(messages))
    medians = {name: statistics.median(found) for name, found in costs.items()}
    shown: list[tuple[str, ...]] = []
    for what in dict.fromkeys(what for what, _ in works):
        one, many = medians[what, "rows"], medians[what, "batches"]
        shown.append((what, f"{one:,.0f}", f"{many:,.0f}", f"{one / many:.1f}"))
    report.add(
        "batch-in-process",
        Table(
            f"Processor time of one thread, ns/record; batches of {BATCH_RECORDS:,}",
            ("what", "rows", "batches", "ratio"),
            shown,
        ),
        {f"{what}, {way}": found for (what, way), found in costs.items()},
    )


def _works(
    slices: Sequence[Sequence[Any]],
) -> dict[tuple[str, str], list[Callable[[], object]]]:
    """Return what is done to each slice, by what it is and the way it is done."""
    rows = [[orjson.loads(message.value()) for message in one] for one in slices]
    columns = [pa.RecordBatch.from_pylist(one, _schema()) for one in rows]
    works: dict[tuple[str, str], list[Callable[[], object]]] = {}
    for what, (of_record, of_batch) in WORKS.items():
        runs = {way: _compiled(what, way) for way in WAYS}
        _require_equal(runs, slices[0])
        alone, whole = f"{what}: the function alone", f"{what}: from JSON to JSON"
        works[alone, "rows"] = [partial(_map, of_record, one) for one in rows]
        works[alone, "batches"] = [partial(of_batch, one) for one in columns]
        works[whole, "rows"] = [partial(runs["rows"], one) for one in slices]
        works[whole, "batches"] = [partial(runs["batches"], one) for one in slices]
    return works


def _map(function: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    return list(map(function, values))


def _compiled(what: str, way: str) -> Callable[[Sequence[Any]], list[Any]]:
    (part,) = resolve(declare(what, way, "batch", "in", "out").loaded()).sub_topologies
    (source,) = compile_part(part).sources.values()

    def work(messages: Sequence[Any]) -> list[Any]:
        out: list[Any] = []
        source.run(messages, out, 0, _refuse)
        return out

    return work


def _require_equal(runs: dict[str, Callable[[Any], list[Any]]], messages: Sequence[Any]) -> None:
    """Raise if the two ways do not give the same values, but for how sums are rounded."""
    found = [[orjson.loads(output[1]) for output in run(messages)] for run in runs.values()]
    for one, other in zip(*found, strict=True):
        assert one.keys() == other.keys()
        assert all(math.isclose(one[name], other[name], rel_tol=1e-9) for name in one), (one, other)


def _schema() -> Any:
    return pa.schema([(name, getattr(pa, kind)()) for name, kind in SCHEMA.items()])


def _refuse(_: object, __: object, error: BaseException, ___: object) -> None:
    raise error
