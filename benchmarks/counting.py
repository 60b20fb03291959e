"""`count`: a count per key with state by every contestant, in turns and in two forms.

In one form every update goes out, in the other the last one of each key and commit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from benchmarks.contestants.framework import A_PRODUCER_EACH, EACH, Framework
from benchmarks.contestants.handwritten import Handwritten
from benchmarks.contestants.quix import QuixStreams
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Contestant, Work
from benchmarks.inputs import json_records
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.options import Options
from benchmarks.outputs import require_counted
from benchmarks.processes import Child
from benchmarks.report import Report
from benchmarks.session import Session
from benchmarks.standings import Field, Standing, enter

DEFAULT_RECORDS = 1_000_000
DEFAULT_ROUNDS = 5
KEYS = 1000
NO_CACHE = {"BENCH_CACHE_BYTES": "0"}
TRANSACTIONAL = {"BENCH_TRANSACTIONAL_STORES": "true"}

GOALS_EACH = {"hand-written loop": 0.75, "Kafka Streams, no cache": 3.2, "Quix Streams": 12.0}
GOALS_COMMIT = {"hand-written loop": 0.9, "Kafka Streams, cache": 3.0}
"""Goal of eosframework's speed, as a multiple of each contestant's."""


@dataclass(frozen=True)
class Form:
    """Outputs of a key: `each` update, or the last one of a `commit`."""

    emit: str
    title: str
    field: Field


def run(session: Session, options: Options, report: Report) -> None:
    """Let every contestant of both forms work in every round."""
    records = options.records or DEFAULT_RECORDS
    forms = [
        Form("each", "every update goes out", enter(_each(), records, GOALS_EACH)),
        Form(
            "commit", "the last count of a commit goes out", enter(_commit(), records, GOALS_COMMIT)
        ),
    ]
    _turn(session, Standing(framework("commit"), "", records), "commit")
    for round_number in range(options.rounds or DEFAULT_ROUNDS):
        for form in forms:
            for standing in form.field.of_round(round_number):
                speed = _turn(session, standing, form.emit)
                standing.speeds.append(speed)
                report.progress(
                    f"round {round_number + 1}, {form.emit}: {standing.contestant.name} "
                    f"{speed.records_per_second:,.0f} records/s"
                )
    for form in forms:
        title = f"Count of {records:,} records by {KEYS:,} keys, {form.title}"
        report.add(f"count-{form.emit}", form.field.table(title), form.field.data())


def framework(emit: str) -> Framework:
    """Return eosframework's part in a form."""
    return Framework(environment={"BENCH_EMIT": emit})


def _with_a_producer_each(emit: str) -> Framework:
    return Framework(EACH, A_PRODUCER_EACH, environment={"BENCH_EMIT": emit})


def _each() -> tuple[Contestant, ...]:
    return (
        framework("each"),
        _with_a_producer_each("each"),
        _handwritten("hand-written loop", "each", "each"),
        _handwritten("the same, changelog at the commit", "each", "commit"),
        KafkaStreams("Kafka Streams, no cache", NO_CACHE),
        KafkaStreams("Kafka Streams, no cache, transactional stores", NO_CACHE | TRANSACTIONAL),
        QuixStreams(),
    )


def _commit() -> tuple[Contestant, ...]:
    return (
        framework("commit"),
        _with_a_producer_each("commit"),
        _handwritten("hand-written loop", "commit", "commit"),
        KafkaStreams("Kafka Streams, cache"),
        KafkaStreams("Kafka Streams, cache, transactional stores", TRANSACTIONAL),
    )


def _handwritten(name: str, emit: str, changelog: str) -> Handwritten:
    return Handwritten(name, {"BENCH_EMIT": emit, "BENCH_CHANGELOG": changelog})


def _turn(session: Session, standing: Standing, emit: str) -> Speed:
    records = standing.records
    topic = session.input_topic(records, keys=KEYS)
    inputs = Counter(key for key, _ in json_records(records, keys=KEYS))

    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        speed = speed_of_input(offsets, child, records)
        child.stop()
        servers, output = session.bootstrap_servers, work.output_topic
        require_counted(servers, output, inputs, every_update=emit == "each")
        return speed

    return session.run(standing.contestant, topic, measure, changelog=True, discipline="count")
