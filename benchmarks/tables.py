"""`tables`: a table of orders by its groups, and joined by a foreign key, with Kafka Streams.

Each order changes a few times, and every second change moves it to another customer. A run is over
when each key of the output has the value that follows from the last rows of both tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.contestants.framework import Framework
from benchmarks.contestants.streams import KafkaStreams
from benchmarks.contestants.work import Contestant, Work
from benchmarks.counting import NO_CACHE
from benchmarks.disciplines import customers, factor_of
from benchmarks.inputs import DOUBLED, KEYS, Made, json_records
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.options import Options
from benchmarks.outputs import FinalValues
from benchmarks.processes import Child, ProcessFailed
from benchmarks.report import Report
from benchmarks.session import Session
from benchmarks.standings import Field, Standing, enter

DEFAULT_RECORDS = 500_000
DEFAULT_ROUNDS = 5
ORDERS = 100_000
"""Rows of the table."""

GOAL = 1.5
SUM = ".sum"
TOPOLOGY = Path(__file__).parent / "contestants" / "tables_topology.py"
APPLIED = "benchmarks.contestants.applied_worker"
_CUSTOMER = b'"customer":"customer-'
_DIGITS = 5

Final = Mapping[tuple[str, bytes], int]
"""The last values, by suffix of the output's name and key."""


@dataclass(frozen=True)
class Form:
    """A work in one form.

    Args:
        name: of the result.
        discipline: by which programs know the work.
        title: what is done.
        final: the last values after so many records of the input.
        value_of: the value in an output.
        field: the contestants.
        outputs: what the names of further output topics have behind that of the first.
    """

    name: str
    discipline: str
    title: str
    final: Callable[[int], Final]
    value_of: Callable[[bytes], int]
    field: Field
    outputs: tuple[str, ...] = ()


def run(session: Session, options: Options, report: Report) -> None:
    """Let both contestants of each form work in every round."""
    records = options.records or DEFAULT_RECORDS
    forms = _forms(records)
    _turn(session, Standing(_framework("commit"), "", records), forms[0])
    for round_number in range(options.rounds or DEFAULT_ROUNDS):
        for form in forms:
            for standing in form.field.of_round(round_number):
                speed = _turn(session, standing, form)
                standing.speeds.append(speed)
                report.progress(
                    f"round {round_number + 1}, {form.name}: {standing.contestant.name} "
                    f"{speed.records_per_second:,.0f} records/s"
                )
    for form in forms:
        title = f"{records:,} changes of {ORDERS:,} orders, {form.title}"
        report.add(form.name, form.field.table(title), form.field.data())


def _forms(records: int) -> list[Form]:
    def grouped(emit: str, title: str, streams: Contestant) -> Form:
        field = enter((_framework(emit), streams), records, {streams.name: GOAL})
        name = f"tables-{emit}"
        return Form(name, "groups", title, final_groups, _number, field, (SUM,))

    cached, uncached = KafkaStreams(), KafkaStreams("Kafka Streams, no cache", NO_CACHE)
    return [
        grouped("commit", "counted and summed by customer, the last of a commit", cached),
        grouped("each", "counted and summed by customer, every update", uncached),
        Form(
            "tables-foreign",
            "foreign",
            f"joined with {KEYS:,} customers by a foreign key",
            final_joins,
            _amount,
            enter((_framework("each"), cached), records, {cached.name: GOAL}),
        ),
    ]


def _framework(emit: str) -> Framework:
    return Framework(module=APPLIED, environment={"BENCH_EMIT": emit}, topology=TOPOLOGY)


def _turn(session: Session, standing: Standing, form: Form) -> Speed:
    records = standing.records
    joins = form.discipline == "foreign"
    # First, since rows count from their own time on.
    table_topic = session.topic_of(customers, KEYS, by_key=True) if joins else ""

    def measure(offsets: CommittedOffsets, child: Child, work: Work) -> Speed:
        final = {
            (work.output_topic + suffix, key): value
            for (suffix, key), value in form.final(records).items()
        }
        values = FinalValues(session.bootstrap_servers, final, form.value_of)
        try:
            speed = speed_of_input(_Finished(offsets, values, records), child, records)
            child.stop()
            if not values.look():
                raise ProcessFailed(
                    f"{standing.contestant.name} has changed {values.missing} final results"
                )
        finally:
            values.close()
        return speed

    return session.run(
        standing.contestant,
        session.topic_of(changed_orders, records, by_key=True),
        measure,
        outputs=form.outputs,
        discipline=form.discipline,
        table_topic=table_topic,
    )


@dataclass(frozen=True)
class _Finished:
    """Committed input, of which the last record counts once all results are final."""

    offsets: CommittedOffsets
    values: FinalValues
    records: int

    def total(self) -> int:
        """Number of records."""
        if self.values.look():
            return self.records
        return min(self.offsets.total(), self.records - 1)


def changed_orders(count: int) -> Iterator[Made]:
    """Give the changes of the orders, each with its key."""
    for number, (_, value) in enumerate(json_records(count)):
        order, changes = number % ORDERS, number // ORDERS
        customer = (order * 7919 + (changes + 1) // 2 * 104_729) % KEYS
        head, _, tail = value.partition(_CUSTOMER)
        yield b"order-%06d" % order, b"%s%s%05d%s" % (head, _CUSTOMER, customer, tail[_DIGITS:])


def _last_orders(records: int) -> dict[bytes, tuple[str, int]]:
    """Return the customer and the amount of each order."""
    last = {key: orjson.loads(value) for key, value in dict(changed_orders(records)).items()}
    return {key: (order["customer"], order[DOUBLED]) for key, order in last.items()}


def final_groups(records: int) -> Final:
    """Return the number of orders and the sum of their amounts; customers without any have 0."""
    final = dict.fromkeys(
        ((suffix, b"customer-%05d" % n) for suffix in ("", SUM) for n in range(KEYS)), 0
    )
    for customer, amount in _last_orders(records).values():
        final["", customer.encode()] += 1
        final[SUM, customer.encode()] += amount
    return final


def final_joins(records: int) -> Final:
    """Return the amount of each order, multiplied by the factor of its customer."""
    return {
        ("", key): amount * factor_of(int(customer[-_DIGITS:]))
        for key, (customer, amount) in _last_orders(records).items()
    }


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _amount(data: bytes) -> int:
    return orjson.loads(data)[DOUBLED]
