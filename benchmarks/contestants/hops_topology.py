"""Records through repartition topics, of which `hops` measures the time."""

from __future__ import annotations

import os
from collections.abc import Mapping

from eosframework import Record, Topology


def key_of(record: Record[bytes, bytes]) -> bytes:
    return record.key


def later(so_far: bytes, value: bytes) -> bytes:
    return value


def declare(work: Mapping[str, str]) -> Topology:
    """Declare `BENCH_HOPS` repartition topics, each with the last value of a key after it."""
    app = Topology(work["BENCH_APPLICATION"])
    stream = app.stream(work["BENCH_INPUT"], key=bytes, value=bytes, name="records")
    for number in range(int(work["BENCH_HOPS"])):
        groups = stream.select_key(key_of).group_by_key()
        stream = groups.reduce(later, value=bytes, store=f"hop.{number}")
    stream.to(work["BENCH_OUTPUT"])
    return app


app = declare(os.environ)
"""Declared on import, as the command line wants it."""
