"""The disciplines: kinds of work that every contestant can do, each with its input and its proof.

What a contestant does in a discipline is in its own program, under the discipline's name:
`contestants/framework_topology.py`, `handwritten_program.py`, `quix_program.py`, and in
`java/Disciplines.java`.
"""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import orjson
from confluent_kafka import Message

from benchmarks.inputs import DOUBLED, KEYS, Made, json_records
from benchmarks.outputs import committed
from benchmarks.processes import ProcessFailed

WINDOW_MS = 10_000
WINDOW_KEYS = 1000
HEADERS = [("trace", b"0af7651916cd43dd8448eb211c80319c")]

_BEGAN_MS = (int(time.time()) // 3600 - 2) * 3_600_000
"""Recent: brokers remove records by their timestamps."""


@dataclass(frozen=True)
class Discipline:
    """One kind of work.

    Args:
        name: by which programs know it.
        title: what is done with a record.
        made: the input, by the number of its records.
        of_inputs: a number for the whole input that tells whether all was done, once.
        of_output: what an output adds to that number.
        outputs: what the names of further output topics have behind that of the first.
        table: the rows that the input is joined with.
        keeps: whether something is kept for each key.
        goals: for eosframework's speed as a multiple of others', by their names.
    """

    name: str
    title: str
    made: Callable[[int], Iterable[Made]]
    of_inputs: Callable[[Iterable[Made]], int]
    of_output: Callable[[Message], int]
    outputs: tuple[str, ...] = ()
    table: Callable[[int], Iterable[Made]] | None = None
    keeps: bool = False
    goals: tuple[tuple[str, float], ...] = ()

    def require_done(self, bootstrap_servers: str, output_topic: str, records: int) -> None:
        """Read what is committed in the outputs to their ends and compare it with the input.

        Raises:
            ProcessFailed: something is missing, twice there, or other than it should be.
        """
        count = total = 0
        for suffix in ("", *self.outputs):
            for message in committed(bootstrap_servers, output_topic + suffix):
                count += 1
                total += self.of_output(message)
        wanted = records * (1 + len(self.outputs)), self.of_inputs(self.made(records))
        if (count, total) != wanted:
            raise ProcessFailed(
                f"{output_topic} holds {count} records that add up to {total}; "
                f"expected {wanted[0]} and {wanted[1]} for {self.name}"
            )


def bytes_of_100(count: int) -> Iterator[Made]:
    """Give keys with values of 100 bytes."""
    return _bytes(count, 100)


def bytes_of_1000(count: int) -> Iterator[Made]:
    """Give keys with values of 1 KB."""
    return _bytes(count, 1000)


def orders(count: int) -> Iterator[Made]:
    """Give keys with JSON values of about 225 bytes."""
    return json_records(count)


def traced_orders(count: int) -> Iterator[Made]:
    """Give the same with a header."""
    return ((key, value, _BEGAN_MS, HEADERS) for key, value in json_records(count))


def timed_orders(count: int) -> Iterator[Made]:
    """Give the same, one a millisecond of event time."""
    found = json_records(count, keys=WINDOW_KEYS)
    return ((key, value, _BEGAN_MS + n) for n, (key, value) in enumerate(found))


def customers(_: int) -> Iterator[Made]:
    """Give a row for each key of the orders: by what the amount is multiplied.

    A day older than they are: by time, an order meets no row that is younger.
    """
    yesterday = int(time.time() - 86_400) * 1000
    for number in range(KEYS):
        yield b"customer-%05d" % number, b'{"factor":%d}' % factor_of(number), yesterday


def factor_of(number: int) -> int:
    return 2 + number % 5


def _bytes(count: int, size: int) -> Iterator[Made]:
    source = random.Random(size)
    distinct = [source.randbytes(size) for _ in range(1000)]
    for number in range(count):
        yield b"customer-%05d" % (number % KEYS), distinct[number % len(distinct)]


def _checksums(made: Iterable[Made]) -> int:
    return sum(zlib.crc32(value) for _, value, *_ in made)


def _checksum(message: Message) -> int:
    return zlib.crc32(message.value() or b"")


def _three_checksums(made: Iterable[Made]) -> int:
    return sum(3 * zlib.crc32(value) + 3 * len(headers) for _, value, _, headers in made)


def _checksum_and_headers(message: Message) -> int:
    same = message.headers() == HEADERS
    return _checksum(message) + (len(HEADERS) if same else 0)


def _doubled_amounts(made: Iterable[Made]) -> int:
    return 2 * sum(orjson.loads(value)[DOUBLED] for _, value, *_ in made)


def _multiplied_amounts(made: Iterable[Made]) -> int:
    return sum(
        orjson.loads(value)[DOUBLED] * factor_of(number % KEYS)
        for number, (_, value, *_) in enumerate(made)
    )


def _amount(message: Message) -> int:
    return orjson.loads(message.value() or b"")[DOUBLED]


def _counts_in_windows(made: Iterable[Made]) -> int:
    """Every count from 1 up to what a key has in a window goes out."""
    counts = Counter((key, at // WINDOW_MS) for key, _, at in made)
    return sum(n * (n + 1) // 2 for n in counts.values())


def _count(message: Message) -> int:
    return orjson.loads(message.value() or b"")["value"]


JSON = Discipline(
    "json",
    "JSON in, a field doubled, JSON out",
    orders,
    _doubled_amounts,
    _amount,
    goals=(("hand-written loop", 1.0), ("Kafka Streams", 2.4), ("Quix Streams", 7.0)),
)
PASSTHROUGH = Discipline(
    "passthrough", "100 bytes as they are", bytes_of_100, _checksums, _checksum
)

DISCIPLINES: tuple[Discipline, ...] = (
    PASSTHROUGH,
    Discipline("passthrough-1k", "1 KB as it is", bytes_of_1000, _checksums, _checksum),
    JSON,
    Discipline(
        "model", "a validated model in, a field doubled, out", orders, _doubled_amounts, _amount
    ),
    Discipline(
        "fan-out",
        "to three topics, with headers",
        traced_orders,
        _three_checksums,
        _checksum_and_headers,
        outputs=(".second", ".third"),
    ),
    Discipline(
        "window",
        f"count per key in tumbling windows of {WINDOW_MS // 1000} s",
        timed_orders,
        _counts_in_windows,
        _count,
        keeps=True,
    ),
    Discipline(
        "join",
        f"JSON joined with a table of {KEYS:,} rows",
        orders,
        _multiplied_amounts,
        _amount,
        table=customers,
        keeps=True,
    ),
)
"""All but `count`, which is proved more closely and has forms of its own."""
