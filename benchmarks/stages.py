"""`stages`: what each part of the way of a record costs by itself, without the others.

One thread does one part at a time over messages that came from the broker. Thread time is the
processor time of that thread alone: librdkafka's own threads and the broker show in the clock.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from benchmarks.contestants.framework import TOPOLOGY
from benchmarks.inputs import DOUBLED, PARTITIONS, delete_topics
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import CompiledSource, compile_source
from eosframework.engine.task.receipts import ReceiptedOutputs
from eosframework.records import Position
from eosframework.records import TopicPartition as Place
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ports import Output

DEFAULT_RECORDS = 200_000
DEFAULT_ROUNDS = 5
BATCH_RECORDS = 2000


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds per record."""

    clock: float
    thread: float


def run(session: Session, options: Options, report: Report) -> None:
    """Measure every stage in every round; the medians count."""
    records = options.records or DEFAULT_RECORDS
    topic = session.input_topic(records)
    work = session.work(topic)
    os.environ.update(work.environment())
    compiled, receipted = worker_function(), worker_function(receipts=True)
    messages = _consume(session.bootstrap_servers, topic, records)
    outputs = _outputs(messages, work.output_topic)
    receipts: list[Output] = []
    _run_receipted(receipted, messages, keep=receipts)
    stages: dict[str, Callable[[], object]] = {
        "consume": lambda: _consume(session.bootstrap_servers, topic, records),
        "error of each message": lambda: any(map(Message.error, messages)),
        "group by topic and partition": lambda: _group(messages),
        "orjson: loads and dumps": lambda: _convert(messages),
        "compiled function": lambda: run_compiled(compiled, messages),
        "compiled function with receipts": lambda: _run_receipted(receipted, messages),
        "produce": lambda: _produce(session, outputs),
        "produce with receipts": lambda: _produce(session, receipts),
        "hand-written: convert and produce": lambda: _handwritten(session, messages, work),
        "compiled function, then produce": lambda: _framework(session, compiled, messages),
    }
    _collect_as_a_worker()
    costs: dict[str, list[Cost]] = {name: [] for name in stages}
    for _ in range(options.rounds or DEFAULT_ROUNDS):
        for name, stage in stages.items():
            costs[name].append(_cost(stage, len(messages)))
    delete_topics(session.bootstrap_servers, work.output_topic)
    _report(report, costs, records)


def _collect_as_a_worker() -> None:
    """Let the garbage collector look as rarely as in a worker, and not at what is kept here."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _cost(stage: Callable[[], object], records: int) -> Cost:
    clock, thread = time.perf_counter_ns(), time.thread_time_ns()
    stage()
    return Cost(
        (time.perf_counter_ns() - clock) / records, (time.thread_time_ns() - thread) / records
    )


def worker_function(*, receipts: bool = False) -> CompiledSource:
    """Return what a worker compiles of the topology."""
    graph = resolve(load_app(str(TOPOLOGY)))
    return compile_source(graph.sub_topologies[0].sources[0], CompileContext(receipts=receipts))


def _consume(bootstrap_servers: str, topic: str, records: int) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "stages",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    messages: list[Message] = []
    while len(messages) < records:
        messages += consumer.consume(BATCH_RECORDS, 10)
    consumer.close()
    return messages


def _group(messages: list[Message]) -> None:
    for _, of_topic in groupby(messages, Message.topic):
        for _, of_partition in groupby(of_topic, Message.partition):
            list(of_partition)


def _convert(messages: list[Message]) -> None:
    loads, dumps = orjson.loads, orjson.dumps
    for message in messages:
        dumps(loads(message.value() or b""))


def _outputs(messages: list[Message], topic: str) -> list[Output]:
    return [(topic, m.value(), m.key(), -1, None, None, m.timestamp()[1], None) for m in messages]


def _produce(session: Session, outputs: Sequence[Output]) -> None:
    producer = _producer(session)
    produce = producer.produce
    for output in outputs:
        produce(*output)
    producer.commit_transaction()


def run_compiled(compiled: CompiledSource, messages: Sequence[Any]) -> None:
    """Run all messages, a batch at a time, and forget the outputs."""
    for start in range(0, len(messages), BATCH_RECORDS):
        compiled.run(messages[start : start + BATCH_RECORDS], [], 0, _refuse)


def _run_receipted(
    compiled: CompiledSource, messages: Sequence[Any], keep: list[Output] | None = None
) -> None:
    """Run all messages as if of one partition, and keep the outputs if that is wanted."""
    outputs, place = ReceiptedOutputs("stages"), Place("numbers", 0)
    outputs.restart([Position(*place, 0)])
    for start in range(0, len(messages), BATCH_RECORDS):
        outputs.begin(place, 1)
        compiled.run(messages[start : start + BATCH_RECORDS], outputs, 0, _refuse)
        outputs.end(place)
        if keep is not None:
            keep += outputs
        outputs.clear()


def _framework(session: Session, compiled: CompiledSource, messages: Sequence[Any]) -> None:
    producer = _producer(session)
    produce = producer.produce
    for start in range(0, len(messages), BATCH_RECORDS):
        outputs: list[Output] = []
        compiled.run(messages[start : start + BATCH_RECORDS], outputs, 0, _refuse)
        for output in outputs:
            produce(*output)
    producer.commit_transaction()


def _handwritten(session: Session, messages: list[Message], work: Any) -> None:
    producer = _producer(session)
    produce, topic = producer.produce, work.output_topic
    loads, dumps = orjson.loads, orjson.dumps
    for message in messages:
        order = loads(message.value() or b"")
        order[DOUBLED] *= 2
        produce(topic, dumps(order), message.key(), -1, None, None, message.timestamp()[1])
    producer.commit_transaction()


def _producer(session: Session) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": session.bootstrap_servers,
            "transactional.id": "stages",
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1024 * 1024,
        }
    )
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def _refuse(_: object, __: object, error: BaseException, ___: object) -> None:
    raise error


def _report(report: Report, costs: dict[str, list[Cost]], records: int) -> None:
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for name, found in costs.items():
        clock = statistics.median(cost.clock for cost in found)
        thread = statistics.median(cost.thread for cost in found)
        rows.append((name, f"{thread:,.0f}", f"{clock:,.0f}"))
        data[name] = {"thread_nanoseconds": round(thread), "clock_nanoseconds": round(clock)}
    table = Table(
        title=f"Cost of the parts, {records:,} records of about 225 bytes",
        columns=("part", "thread, ns/record", "clock, ns/record"),
        rows=rows,
    )
    report.add("stages", table, data)
