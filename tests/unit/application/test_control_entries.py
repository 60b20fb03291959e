"""Whatever bytes are in a control topic, each record is an entry, passed over, or named."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.application.backfill_jobs import backfill_jobs, job_ranges
from eosframework.application.control_entries import key_of, read_entry
from eosframework.application.control_topic import interpret
from eosframework.application.fencing import all_but_owners
from eosframework.application.journal import KafkaJournal
from eosframework.errors import ControlTopicDamaged, StartRefused
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("app", {"part": (["in"], [])})
JOB = {"ranges": {"in": [{"first": 0, "end": 1}] * 2}, "own_starts": {"x": [0]}}
PLAIN = ("application", "topology", "reset", "ownership", "relay.outbox", "leases", "released")
SHAPES = (
    *(f"{kind}/in" for kind in ("topic", "written", "replayed", "other", "sink")),
    *("committed/*/*/*", "replayed/*/*/*", "failed/*/*"),
    *("backfill/*", "backfill/*/files/*/*", "backfill/*/ends/*", "backfill/*/task/*/*"),
    *("backfill/*/tables", "backfill/*/*"),
)
PARTS = st.sampled_from(["in", "part", "job", "task", "0", "0", "x"]) | st.sampled_from(
    ["", "-1", "\u0663", "A B", "9" * 5000, "x" * 40_000]
)
NAMES = [
    "topic_id",
    "partitions",
    "at",
    "ids",
    "released",
    "version",
    "parts",
    "origin",
    "application",
    "ranges",
]
NAMES += [
    "offset",
    "error",
    "instance",
    "positions",
    "metadata",
    "complete",
    "suffix",
    "own_starts",
    "in",
    "first",
    "end",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["part/0", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from([*NAMES, "sub_topology", "stores", "repartitions"]), inner
        )
    ),
    max_leaves=6,
)


@st.composite
def keys(draw: st.DrawFn) -> bytes:
    """Draw a key of a known form, with parts that fit or not."""
    pieces = draw(st.sampled_from([*PLAIN, *SHAPES])).split("*")
    parts = [draw(PARTS) for _ in pieces[1:]]
    return "".join([pieces[0], *(a + b for a, b in zip(parts, pieces[1:], strict=True))]).encode()


KEYS = keys() | st.binary(max_size=8)
VALUES = JSON.map(orjson.dumps) | st.none() | st.binary(max_size=8)


@dataclass(frozen=True)
class LogOf:
    entries: Mapping[str, Any]
    topic = "app-control"

    def settled_under(self, prefix: str) -> dict[str, Any]:
        return {key: value for key, value in self.entries.items() if key.startswith(prefix)}


@dataclass(frozen=True)
class Raw:
    raw_key: bytes | None
    raw_value: bytes | None

    def key(self) -> bytes | None:
        return self.raw_key

    def value(self) -> bytes | None:
        return self.raw_value

    def topic(self) -> str:
        return "app-control"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 41


@settings(max_examples=1000)
@given(KEYS | st.none(), VALUES)
def test_an_entry_is_read_passed_over_or_named(key: bytes | None, value: bytes | None) -> None:
    message: Any = Raw(key, value)
    refusal, entry = "", None
    try:
        entry = read_entry(message)
    except StartRefused as error:
        refusal = str(error)
    if refusal:
        assert "app-control[0]@41" in refusal
    elif entry is not None:
        assert entry[0] == key_of(message)
        if entry[1] is not None:
            control = interpret(dict([entry]))
            str(backfill_jobs(GRAPH, control, {"in": 2}))
            all_but_owners(GRAPH, control)
            with suppress(ControlTopicDamaged):  # Entries that do not fit each other.
                log = LogOf({"backfill/job": JOB, **control.entries})
                str(job_ranges(cast("KafkaJournal", log)))
