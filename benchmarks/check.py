"""`check`: whether a record costs more than it did, in minutes on any machine.

Costs of the worker's own code are set against the conversion written by hand and against the loop
that does nothing, all in one thread and in turns; a whole worker's CPU time against that of the
hand-written loop, over the same records. Absolute times play no part.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence

import orjson

from benchmarks.contest import turn, warm_up
from benchmarks.contestants.framework import Framework
from benchmarks.contestants.handwritten import Handwritten
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Contestant, Unavailable
from benchmarks.disciplines import JSON
from benchmarks.floors import Finding, Limit, judge, require_all
from benchmarks.inputs import DOUBLED, json_records
from benchmarks.operators import OPERATORS, Read, work_of
from benchmarks.options import Options
from benchmarks.report import Report, Table
from benchmarks.session import Session
from benchmarks.stages import BATCH_RECORDS, run_compiled, worker_function
from benchmarks.standings import Standing
from benchmarks.waits import waits_of

DEFAULT_RECORDS = 300_000
DEFAULT_ROUNDS = 5
LOOP_RECORDS = 20_000
LOOP_ROUNDS = 15

LOOP = "the loop that does nothing"
OPERATOR_LIMITS = tuple(
    Limit(name, LOOP, most)
    for name, most in {
        "map_values": 1.5,
        "filter": 1.4,
        "process": 6.5,
        "count": 3.6,
        "count, tumbling 1 m": 12.5,
        "join with a table": 5.2,
    }.items()
)
# 1.08 before each output was searched for null, which orjson writes for NaN (0.1 µs), and its time
# was compared with 1 ms, since librdkafka takes 0 for the present.
CONVERSION = Limit("compiled function, JSON", "the conversion by hand", 1.4)
LATENCY = Limit("p50 latency over 64 partitions", "Kafka Streams", 1.6)
"""The goal is 1.1, from a quiet machine. With a producer for each partition it was 123."""
LATENCY_PARTITIONS = 64
LATENCY_ROUNDS = 3
LATENCY_SECONDS = 4.0
WORKER = Limit("CPU of a worker, JSON", "the hand-written loop", 1.35)


def run(session: Session, options: Options, report: Report) -> None:
    """Measure everything, tell all of it, then refuse what fell.

    Raises:
        FloorMissed: a ratio is worse than its limit by more than its own noise.
    """
    rounds = options.rounds or DEFAULT_ROUNDS
    worker = _worker(session, options.records or DEFAULT_RECORDS, rounds, report)
    findings = [worker, *_latency(session, report), *_in_this_process(max(rounds, LOOP_ROUNDS))]
    rows = [
        (
            found.limit.name,
            found.limit.beside,
            str(found.interval),
            f"{found.limit.most:g}",
            "yes" if found.holds else "no",
        )
        for found in findings
    ]
    columns = ("cost of", "as a multiple of", "median (95% interval)", "at most", "holds")
    data = {
        found.limit.name: {
            "median": found.interval.median,
            "low": found.interval.low,
            "high": found.interval.high,
            "most": found.limit.most,
        }
        for found in findings
    }
    report.add("check", Table("Costs as ratios", columns, rows), data)
    require_all(findings)


def _worker(session: Session, records: int, rounds: int, report: Report) -> Finding:
    """Compare the CPU time of whole processes over the same records, in turns."""
    warm_up(session, records, JSON)
    ratios: list[float] = []
    for number in range(rounds):
        pair = [Standing(Framework(), "", records), Standing(Handwritten(), "", records)]
        for standing in pair if number % 2 else reversed(pair):
            standing.speeds.append(turn(session, standing, JSON))
        ratios.append(pair[0].cpu_microseconds / pair[1].cpu_microseconds)
        report.progress(f"round {number + 1}: a worker's CPU beside a loop's: {ratios[-1]:.2f}")
    return judge(WORKER, ratios)


def _latency(session: Session, report: Report) -> list[Finding]:
    """Compare the latency over many partitions with that of Kafka Streams, in turns."""
    peers: list[Contestant] = [Framework(), KafkaStreams()]
    try:
        peers[1].prepare()
    except Unavailable as reason:
        report.progress(f"{peers[1].name} is absent, so latency is not compared: {reason}")
        return []
    ratios: list[float] = []
    for number in range(LATENCY_ROUNDS):
        found = {
            peer.name: waits_of(
                session, peer, seconds=LATENCY_SECONDS, partitions=LATENCY_PARTITIONS
            ).median
            for peer in (peers if number % 2 else reversed(peers))
        }
        ratios.append(found[peers[0].name] / found[peers[1].name])
        told = ", ".join(f"{name} {median:.0f} ms" for name, median in found.items())
        report.progress(f"{LATENCY_PARTITIONS} partitions, round {number + 1}: {told}")
    return [judge(LATENCY, ratios)]


def _in_this_process(rounds: int) -> list[Finding]:
    """Compare costs in this thread: each round measures all of them once."""
    works = {limit.name: work_of(OPERATORS[limit.name], LOOP_RECORDS) for limit in OPERATOR_LIMITS}
    empty = work_of(lambda stream, app: stream, LOOP_RECORDS)
    compiled, by_hand = _conversions()
    gc.collect()
    gc.freeze()
    gc.disable()
    ratios: dict[str, list[float]] = {name: [] for name in works}
    conversions: list[float] = []
    try:
        for _ in range(rounds):
            loop = empty()
            for name, work in works.items():
                ratios[name].append(work() / loop)
            conversions.append(_seconds(compiled) / _seconds(by_hand))
    finally:
        gc.enable()
    found = [judge(limit, ratios[limit.name]) for limit in OPERATOR_LIMITS]
    return [judge(CONVERSION, conversions), *found]


def _conversions() -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the worker's compiled function and the same by hand, over the same messages."""
    os.environ.update(
        BENCH_APPLICATION="check",
        BENCH_INPUT="in",
        BENCH_OUTPUT="out",
        BENCH_DISCIPLINE=JSON.name,
    )
    messages = [
        Read(("in", key, value, number, number))
        for number, (key, value) in enumerate(json_records(LOOP_RECORDS))
    ]
    function = worker_function()
    return lambda: run_compiled(function, messages), lambda: _by_hand(messages)


def _by_hand(messages: Sequence[Read]) -> None:
    loads, dumps = orjson.loads, orjson.dumps
    for start in range(0, len(messages), BATCH_RECORDS):
        outputs: list[object] = []
        for message in messages[start : start + BATCH_RECORDS]:
            order = loads(message.value())
            order[DOUBLED] *= 2
            outputs.append(
                ("out", dumps(order), message.key(), -1, None, None, message.timestamp()[1], None)
            )


def _seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
