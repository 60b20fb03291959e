"""What checks of open transactions find."""

from __future__ import annotations

from eosframework.kafka.inspect.hanging import Health
from eosframework.operations.doctor.findings import Seen
from tests.unit.operations.doctor.case import Case, E, N, W
from tests.unit.operations.doctor.made_up import open_in, snapshot

CASES = [
    Case(
        "hanging-transactions",
        E,
        lambda: snapshot(open_transactions=Seen((open_in("orders", Health.UNKNOWN),))),
        "no coordinator has it open",
        "eosframework txn abort --topic orders --partition 0 --producer-id 9",
    ),
    Case(
        "hanging-offsets",
        E,
        lambda: snapshot(open_offsets=Seen((open_in("__consumer_offsets", Health.OVERDUE),))),
        "its timeout is over",
        "eosframework txn abort other:late:0",
    ),
    Case(
        "held-back",
        N,
        lambda: snapshot(open_transactions=Seen((open_in("orders", Health.HEALTHY),))),
        "last stable offset 12, end 20: other:late:0",
        "txn describe other:late:0",
    ),
    Case(
        "held-back",
        W,
        lambda: snapshot(open_transactions=Seen((open_in("orders", Health.HEALTHY, 50),))),
        "open for 50.0 s",
        "txn describe other:late:0",
    ),
]
