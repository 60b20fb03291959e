"""Parsers of bytes that others write: whatever these are, nothing but a named error comes out.

Each line of `PARSERS` names a parser, what it reads, and the errors that its docstring promises.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.application.monitoring.tracing.traced_tasks import context_in
from eosframework.application.position_changes import PositionRequest
from eosframework.embedded.kafka_cluster import load_layout
from eosframework.embedded.postgres_server import load_record
from eosframework.engine.failures.failure_headers import OWN_HEADERS, RetriedRecord
from eosframework.engine.operators.entries import EntryFormat, unpacked
from eosframework.engine.operators.windows import SpansFormat, WindowFormat
from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.receipts import Receipt, Series
from eosframework.errors import ConfigurationError, EosError, RunError
from eosframework.kafka.inspect.formats import decode_offset, decode_state, transactional_id_of
from eosframework.operations.audit.application_audit import _number, _text
from eosframework.operations.audit.audit_verdict import Bound
from eosframework.operations.dead_letters.dead_letter import DeadLetter, DeadLetterPlace
from eosframework.postgres.database.outbox.outbox_slot import PREFIX, events
from eosframework.records import whole_number
from eosframework.serialization.serdes import JSON
from eosframework.spark.backfill.job_start import parse_bound
from eosframework.spark.session.ordering import _writer_of
from eosframework.state.manifest import StoreLabel, TaskLabel, decoded_time, shortened, torn
from eosframework.topology.spec.keyed_spec import duration_of
from eosframework.txnid import TransactionalId
from tests.unit.engine.messages import Sent

EXAMPLES = 200

WAITING = frozenset({"changelog"})
"""Kinds of parsers that are made safe elsewhere; take a kind out once it is."""


@dataclass(frozen=True)
class Parser:
    """A parser.

    Args:
        kind: what its bytes lie in.
        parse: calls it, and looks at all of the result.
        valid: bytes that it reads.
        errors: what it may raise.
    """

    kind: str
    name: str
    parse: Callable[[bytes], object]
    valid: tuple[bytes, ...]
    errors: tuple[type[Exception], ...] = ()


def in_file(name: str, load: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return what writes bytes into a file and loads that."""

    def parse(data: bytes) -> object:
        with TemporaryDirectory() as folder:
            Path(folder, name).write_bytes(data)
            return load(Path(folder))

    return parse


def with_headers(look: Callable[[Sent], object]) -> Callable[[bytes], object]:
    """Return what looks at a message all of whose headers have the same value."""
    return lambda data: look(Sent(b"", headers_=[(name, data) for name in sorted(OWN_HEADERS)]))


def repeated(message: Sent) -> object:
    found = RetriedRecord(message)
    return found.origin, found.attempts, found.due_ms, found.first_failed_at, found.headers()


def letter(message: Sent) -> object:
    found = DeadLetter.parse(message)
    return found and found.again("app", "topic", 4)


def manifest(folder: Path) -> object:
    (folder / "CURRENT").write_text("MANIFEST-1")
    return torn(folder)


def loaded(parse: Callable[[Any], object]) -> Callable[[bytes], object]:
    """Return what parses JSON that was read; other bytes are read elsewhere."""

    def read(data: bytes) -> object:
        try:
            content = orjson.loads(data)
        except orjson.JSONDecodeError:
            return None
        return parse(content)

    return read


def text(data: bytes) -> str:
    return data.decode("latin-1")


POSITION = {
    "version": 1,
    "source": "table",
    "through": 1,
    "within": 0,
    "origin": {"system_identifier": "7", "timeline": 1, "database": "d"},
    "turn": 1,
    "shards": 1,
}
STATE = struct.pack(">hqhib", 0, 5, 1, 1000, 1) + struct.pack(">i", 1) + struct.pack(">h", 1)
STATE += b"t" + struct.pack(">iiqq", 1, 0, 1, 1)
LAYOUT = b'{"cluster_id": "c", "ports": [1], "controller_ports": [2]}'

PARSERS = (
    Parser("headers", "receipt", Receipt.parse, (b"1/app/0/in/0/5/0/1/3/1/2",)),
    Parser("headers", "receipts of an audit", lambda d: _number({"n": d}, "n"), (b"5",)),
    Parser("headers", "texts of an audit", lambda d: _text({"n": d}, "n"), (b"in",)),
    Parser("headers", "retry", with_headers(repeated), (b"5", b"1700000000000")),
    Parser("headers", "dead letter", with_headers(letter), (b"5", b"-1")),
    Parser(
        "headers",
        "trace",
        lambda d: context_in([("traceparent", d)]),
        (b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01",),
    ),
    Parser("headers", "writer", with_headers(_writer_of), (b"job-0",)),
    Parser("offsets", "progress", lambda d: Progress.parse(text(d)), (b"eos1;5;1700",)),
    Parser("offsets", "series", lambda d: Series.parse(text(d)), (b"eos1;5;17;r1;0;3;9",)),
    Parser(
        "state", "task label", TaskLabel.decode, (TaskLabel("a", "t", 1).encode(),), (ValueError,)
    ),
    Parser(
        "state",
        "store label",
        StoreLabel.decode,
        (StoreLabel("c", 1, 2, 3.5).encode(),),
        (ValueError,),
    ),
    Parser("state", "stream time", decoded_time, (b"1700",), (ValueError,)),
    Parser("state", "manifest's size", lambda d: shortened(d, {"M": 3}), (b'{"M": 5}',)),
    Parser("state", "manifest", in_file("MANIFEST-1", manifest), (bytes(7) + b"\1\1x",)),
    Parser(
        "files", "cluster", in_file("cluster.json", load_layout), (LAYOUT,), (ConfigurationError,)
    ),
    Parser(
        "files",
        "PostgreSQL",
        in_file("postgres.json", load_record),
        (b'{"port": 5432, "password": "p", "settings": {"fsync": "off"}}',),
        (ConfigurationError,),
    ),
    Parser(
        "brokers",
        "transactional id",
        lambda d: TransactionalId.parse(text(d)),
        (b"app:sub:0", b"app:worker.one:0"),
        (ConfigurationError,),
    ),
    Parser("brokers", "log key", transactional_id_of, (b"\0\0\0\2id",), (RunError,)),
    Parser("brokers", "transaction state", decode_state, (STATE,), (RunError,)),
    Parser(
        "brokers",
        "offset key",
        lambda d: decode_offset(d, bytes(10)),
        (b"\0\1\0\1g\0\1t\0\0\0\0",),
        (RunError,),
    ),
    Parser(
        "brokers",
        "committed offset",
        lambda d: decode_offset(b"\0\1\0\1g\0\1t\0\0\0\0", d),
        (bytes(10),),
        (RunError,),
    ),
    Parser(
        "changelog", "entry", EntryFormat("s", JSON).decode, (b"\1" + bytes(8) + b"5",), (EosError,)
    ),
    Parser(
        "changelog",
        "window",
        WindowFormat("s", JSON).decode,
        (b"\1" + bytes(8) + b"5",),
        (EosError,),
    ),
    Parser(
        "changelog",
        "windows of a key",
        SpansFormat("s", JSON).decode,
        (b"\1" + bytes(8) + struct.pack(">qqQ?I", 0, 1, 2, False, 1) + b"5",),
        (EosError,),
    ),
    Parser("changelog", "packed", lambda d: [*unpacked(d)], (bytes(11) + b"\1x",), (EosError,)),
    Parser(
        "outbox",
        "content of a message in the log",
        lambda d: [*events([b"M\1" + bytes(8) + PREFIX + b"\0" + struct.pack(">I", len(d)) + d])],
        (b'{"topic": "t", "key": "k", "value": "v", "headers": {}}',),
    ),
)


def of_text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """A parser of a command's argument or of a page's field."""
    return lambda data: parse(data.decode("utf-8", "replace"))


TEXTS = (
    Parser("text", "bound", of_text(parse_bound), (b"orders[0]=12", b"2024-01-31"), (EosError,)),
    Parser("text", "position", of_text(PositionRequest.parse), (b"orders[0]=12",), (EosError,)),
    Parser(
        "text", "dead letters", of_text(DeadLetterPlace.parse), (b"orders[0]@1-12",), (EosError,)
    ),
    Parser("text", "bound of an audit", of_text(Bound.parse), (b"orders[0]@12",), (EosError,)),
    Parser("text", "duration", of_text(duration_of), (b"10m", b"1.5h"), (ValueError,)),
    Parser("text", "whole number", of_text(whole_number), (b"12",), ()),
)
PARSERS += TEXTS

PIECES = (
    b"9" * 5000,
    b"[" * 2000,
    b"\xff",
    b"\0",
    b'"',
    b"-1",
    b"null",
    b"{}",
    b"1e999",
    "²٣".encode(),
)
"""What mutations put in: numbers of many digits, deep JSON, no UTF-8, digits of other scripts."""


@st.composite
def hostile(draw: st.DrawFn, valid: tuple[bytes, ...]) -> bytes:
    """Draw arbitrary bytes, or valid ones with a few changes."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=60) | st.sampled_from(PIECES))
    data = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 4)))
        data = data[:start] + draw(st.binary(max_size=4) | st.sampled_from(PIECES)) + data[end:]
    return data


def named(parser: Parser) -> str:
    return f"{parser.kind}: {parser.name}"


@pytest.mark.parametrize("parser", PARSERS, ids=named)
def test_a_parser_reads_what_is_valid(parser: Parser) -> None:
    for data in parser.valid:
        parser.parse(data)


@pytest.mark.parametrize("parser", [p for p in PARSERS if p.kind not in WAITING], ids=named)
def test_whatever_others_write_only_named_errors_come_out(parser: Parser) -> None:
    @settings(max_examples=EXAMPLES, database=None)
    @given(hostile(parser.valid))
    def check(data: bytes) -> None:
        with suppress(*parser.errors):
            parser.parse(data)

    check()
