"""Records through repartition topics, of which `hops` measures the time."""

from __future__ import annotations

import os
from collections.abc import Mapping

from eosframework import Context, Record, Topology


def key_of(record: Record[bytes, bytes]) -> bytes:
    return record.key


def counted(record: Record[bytes, bytes], context: Context) -> list[Record[bytes, bytes]]:
    """Pass a record; the declared store brings the records of each key together."""
    return [record]


def declare(work: Mapping[str, str]) -> Topology:
    """Declare `BENCH_HOPS` repartition topics, each before a step with a store."""
    app = Topology(work["BENCH_APPLICATION"])
    stream = app.stream(work["BENCH_INPUT"], key=bytes, value=bytes, name="records")
    for number in range(int(work["BENCH_HOPS"])):
        keyed = stream.select_key(key_of)
        stream = keyed.process(counted, stores={f"seen.{number}": "integer"}).named(f"hop.{number}")
    stream.to(work["BENCH_OUTPUT"])
    return app


app = declare(os.environ)
"""Declared on import, as the command line wants it."""
