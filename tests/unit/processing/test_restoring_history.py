"""A store that is no prefix of what is committed of its task is read from its changelog again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from eosframework.processing.stores.restoration import start_of
from eosframework.processing.stores.state_ports import Reached, StoreIdentity
from eosframework.state import MemoryState

POSITION, END = 80, 90
HAS = Reached(7, {"in[0]": 100, "more[0]": 5})


@pytest.mark.parametrize(
    ("transaction", "positions", "reason"),
    [
        (7, {"in[0]": 100, "more[0]": 5}, None),
        (9, {"in[0]": 130, "more[0]": 5}, None),
        (7, {"in[0]": 100, "added[0]": 1}, None),
        (6, {"in[0]": 90, "more[0]": 5}, "has transaction 7 of its task, and only 6 is committed"),
        (0, {"in[0]": 0, "more[0]": 0}, "only 0 is committed"),
        (7, {"in[0]": 95, "more[0]": 5}, "another transaction 7 of its task: in[0] at 100 instead"),
    ],
    ids=["the same", "behind", "another set of sources", "ahead", "reset", "another history"],
)
def test_a_store_is_used_only_if_its_transaction_is_a_committed_one(
    transaction: int, positions: Mapping[str, int], reason: str | None
) -> None:
    stores = MemoryState().open("counts-0", 1, [StoreIdentity("counts", "id", 1)])
    stores.write({"counts": [(b"k", b"v")]}, {"counts": POSITION}, reached=HAS)
    committed = Reached(transaction, positions)
    with capture_logs() as logs:
        start = start_of(stores, "counts", (3, END), 1000.0, 0.0, committed)
    if reason is None:
        assert (start, stores.store("counts").get(b"k"), logs) == (POSITION, b"v", [])
        return
    assert (start, stores.store("counts").get(b"k")) == (3, None)
    [event] = logs
    assert event["event"] == "state_rebuilt"
    assert reason in event["reason"]
