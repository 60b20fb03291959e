"""`hops`: what each task of a grouped table and of a foreign-key join costs, and the latency.

The tasks run one after the other in this process, each over the records that the one before it
wrote, with stores in memory and a commit every 20,000 records. Processor time of the thread, with
decoding and encoding, and without a broker. The latency is measured with one, at a steady rate.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.tables_topology import declare
from benchmarks.disciplines import customers
from benchmarks.inputs import KEYS, Made
from benchmarks.operators import BATCH_RECORDS, Nowhere, Read, nanoseconds_of
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from benchmarks.tables import APPLIED, changed_orders
from benchmarks.waits import RECORDS_PER_SECOND, Waits, waits_of
from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.topology.graph.graph import Sink
from eosframework.topology.graph.walk import nodes_of
from eosframework.topology.resolve.resolve import resolve

DEFAULT_RECORDS = 200_000
DEFAULT_ROUNDS = 5
DEFAULT_LATENCY_ROUNDS = 3
DEFAULT_SECONDS = 6.0
MOST_HOPS = 3
TOPOLOGY = Path(__file__).parent / "contestants" / "hops_topology.py"
ORDERS, CUSTOMERS = "orders", "customers"
HOPS = {
    "groups": ("change of a row to its groups", "count and sum of the groups"),
    "foreign": ("subscribe", "answer", "join the answer"),
}
"""By work, its tasks in their order."""


class Collected(Nowhere):
    """An output that keeps what the next tasks read.

    Args:
        kept: by topic.
    """

    def __init__(self, kept: Mapping[str, list[Read]]) -> None:
        super().__init__()
        self._kept = kept

    def produce(self, *output: Any) -> None:
        topic, value, key, _, _, _, timestamp, _ = output
        if (records := self._kept.get(topic)) is not None:
            records.append(Read((topic, key, value, timestamp, len(records))))
        super().produce(*output)


def run(session: Session, options: Options, report: Report) -> None:
    """Measure the tasks of each work, then the latency; the medians of the rounds count."""
    _measure_tasks(options, report)
    _measure_latency(session, options, report)


def _measure_latency(session: Session, options: Options, report: Report) -> None:
    """Measure records that pass no, one, two and three repartition topics."""
    seconds = options.seconds or DEFAULT_SECONDS
    found: list[list[Waits]] = [[] for _ in range(MOST_HOPS + 1)]
    waits_of(session, _through(0), seconds=1)  # the first run warms the broker up
    for _ in range(options.rounds or DEFAULT_LATENCY_ROUNDS):
        for count, waits in enumerate(found):
            waits.append(waits_of(session, _through(count), seconds=seconds))
            report.progress(f"{count} repartition topics: p50 {waits[-1].median:.1f} ms")
    medians = [statistics.median(one.median for one in waits) for waits in found]
    p99s = [statistics.median(one.p99 for one in waits) for waits in found]
    report.add(
        "hops-latency",
        Table(
            f"{RECORDS_PER_SECOND:,} records/s through repartition topics, commits every 100 ms",
            ("repartition topics", "p50, ms", "p99, ms", "p50 of each topic, ms"),
            [
                (
                    str(count),
                    f"{medians[count]:.1f}",
                    f"{p99s[count]:.1f}",
                    f"{(medians[count] - medians[0]) / count:.1f}" if count else "",
                )
                for count in range(MOST_HOPS + 1)
            ],
        ),
        {
            "p50_milliseconds": [[round(one.median, 2) for one in waits] for waits in found],
            "p99_milliseconds": [[round(one.p99, 2) for one in waits] for waits in found],
        },
    )


def _through(count: int) -> Framework:
    environment = {"BENCH_HOPS": str(count)}
    return Framework(module=APPLIED, environment=environment, topology=TOPOLOGY)


def _measure_tasks(options: Options, report: Report) -> None:
    records = options.records or DEFAULT_RECORDS
    works = {work: parts_of(work) for work in HOPS}
    topics = {
        ORDERS: _messages(ORDERS, changed_orders(records)),
        CUSTOMERS: _messages(CUSTOMERS, customers(KEYS)),
    }
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    found: dict[tuple[str, str], list[float]] = {}
    read: dict[tuple[str, str], int] = {}
    for _round in range(options.rounds or DEFAULT_ROUNDS):
        for work, parts in works.items():
            kept = dict(topics)
            for hop, part in zip(HOPS[work], parts, strict=True):
                written = {topic: list[Read]() for topic in _written(part)}
                batches = _batches([kept[topic] for topic in part.sources])
                read[work, hop] = sum(len(batch) for _, batch in batches)
                spent = nanoseconds_of(part, Collected(written), batches)
                found.setdefault((work, hop), []).append(spent / records)
                kept |= written
    report.add(
        "hops",
        Table(
            f"Tasks of the works with tables, {records:,} changes of orders",
            ("work", "task", "records it reads", "µs for each of them", "µs for each change"),
            [
                (
                    *key,
                    f"{read[key]:,}",
                    f"{statistics.median(found[key]) * records / read[key] / 1000:.2f}",
                    f"{statistics.median(found[key]) / 1000:.2f}",
                )
                for key in found
            ],
        ),
        {work: {hop: found[work, hop] for hop in HOPS[work]} for work in HOPS},
    )


def parts_of(work: str) -> list[CompiledPart]:
    """Return the sub-topologies of a work in the order of its tasks."""
    app = declare({"BENCH_DISCIPLINE": work})
    found = [compile_part(part) for part in resolve(app.loaded()).sub_topologies]
    known, ordered = {ORDERS, CUSTOMERS}, list[CompiledPart]()
    while found:
        part = next(part for part in found if known.issuperset(part.sources))
        found.remove(part)
        ordered.append(part)
        known |= _written(part)
    return ordered


def _written(part: CompiledPart) -> set[str]:
    """Return the repartition topics that a task writes."""
    return {
        str(node.topic)
        for node in nodes_of(part.part)
        if isinstance(node, Sink) and str(node.topic).endswith("-repartition")
    }


def _messages(topic: str, made: Iterable[Made]) -> list[Read]:
    return [Read((topic, key, value, 0, n)) for n, (key, value, *_) in enumerate(made)]


def _batches(topics: Sequence[Sequence[Read]]) -> list[tuple[str, list[Read]]]:
    """Return the batches of several topics in turns."""
    cut = [
        [
            (str(records[0].topic()), list(records[first : first + BATCH_RECORDS]))
            for first in range(0, len(records), BATCH_RECORDS)
        ]
        for records in topics
    ]
    return [batch for turn in zip_longest(*cut) for batch in turn if batch is not None]
