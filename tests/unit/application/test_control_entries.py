"""Whatever bytes are in a control topic, each record is an entry, passed over, or named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from eosframework.application.control_entries import key_of, read_entry
from eosframework.application.control_topic import interpret
from eosframework.errors import StartRefused

NAMED = "application topic owner leased sharing ids topology reset committed"
KINDS = st.sampled_from([*NAMED.split(), "relay.outbox", "backfill", "replayed", "other"])
PARTS = st.lists(st.sampled_from(["in", "part", "0", "x", "", "-1", "9" * 5000]), max_size=4)
NAMES = ["topic_id", "partitions", "from", "version", "parts", "origin", "application", "ranges"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["derived", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from([*NAMES, "sub_topology", "stores", "repartitions"]), inner
        )
    ),
    max_leaves=6,
)
KEYS = st.binary(max_size=8) | st.tuples(KINDS, PARTS).map(
    lambda k: "/".join([k[0], *k[1]]).encode()
)
VALUES = st.none() | st.binary(max_size=8) | JSON.map(orjson.dumps)


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
            interpret(dict([entry]))
