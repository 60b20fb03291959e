"""The claim protocol's patience and messages, for both of its users; faults in `unit/matrix`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from eosframework.errors import (
    DatabaseUnavailable,
    InstanceFenced,
    Retriable,
    RunError,
    SchemaRegistryUnavailable,
    Superseded,
)
from eosframework.postgres.tables.position_claims import ClaimPolicy, PartitionTask, PositionClaims
from eosframework.postgres.tables.table_ports import RowMaker
from eosframework.postgres.tables.write_cycle import SUPERSEDED_IN_A_ROW, TableWriterOptions
from eosframework.serialization.serdes import JSON, STRING, Serde
from eosframework.spark.executor.table_attempt import PATIENCE_SECONDS, Pace
from eosframework.topology.graph.graph import Policy, SinkTable, TableMode, TableSink
from tests.support.memory.scripted_kafka import P0, At
from tests.unit.postgres.tables.memory import MemoryStore

WRITER = TableWriterOptions(
    commit_interval_seconds=0.1,
    longest_interval_seconds=10,
    longest_pause_seconds=5,
    heartbeat_interval_seconds=1,
    batch_records=10,
    batch_rows=1000,
    leave_on_stop=True,
).claim_policy
ATTEMPT = Pace(
    commit_interval_seconds=1,
    batch_rows=1000,
    kept_records=1000,
    longest_pause_seconds=5,
    stall_seconds=25,
).claim_policy
POLICIES = pytest.mark.parametrize("policy", [WRITER, ATTEMPT], ids=["writer", "attempt"])

FULL = DatabaseUnavailable("could not extend file: No space left on device")


@dataclass
class World:
    """One partition of one user of the protocol, on a clock that only the test moves."""

    policy: ClaimPolicy
    store: MemoryStore = field(default_factory=MemoryStore)
    value: Any = JSON
    now: float = 0.0
    begin_faults: list[Exception] = field(default_factory=list[Exception])

    def __post_init__(self) -> None:
        self.claims = PositionClaims(
            self.store, self.policy, self.begin, clock=lambda: self.now, chance=lambda: 0.0
        )
        table = SinkTable("s.to(t)", "t", TableMode.APPEND, (), None, None, Policy.FAIL)
        sink = TableSink("s", "in", STRING, self.value, (table,), Policy.FAIL)
        self.task: PartitionTask = self.claims.add(P0, RowMaker(sink))

    def begin(self, claims: Any) -> Any:
        if self.begin_faults:
            raise self.begin_faults.pop(0)
        return {claim.partition: claim.next_offset or 0 for claim in claims}

    def claim(self) -> None:
        while not self.task.is_held:
            self.now += self.claims.wait_seconds()
            self.claims.claim_due()

    def write(self) -> None:
        """Claim if needed, and write one row."""
        self.claim()
        try:
            self.task.add([At(orjson.dumps({"n": 0}), 0, place=P0)])
        except SchemaRegistryUnavailable as error:
            self.claims.discard(self.task, error)
        self.claims.write([self.task])

    def write_on(self) -> None:
        """Write until an error ends it."""
        while True:
            self.write()


@POLICIES
def test_a_database_that_grants_claims_and_refuses_writes_is_asked_ever_more_rarely(
    policy: ClaimPolicy,
) -> None:
    """As on a full disk, where the claim's one page still fits."""
    world = World(policy)
    world.store.write_faults = [(FULL, False)] * 1000
    with capture_logs() as events:
        while world.now < 120:
            world.write()
    assert world.store.calls.count("write") < 35
    told = [event["event"] for event in events if event["event"].startswith("database")]
    assert told == ["database_unavailable"], "one outage, not one for each claim"
    world.store.write_faults.clear()
    with capture_logs() as events:
        world.write()
    assert [event["event"] for event in events][-1] == "database_available"
    assert world.store.positions[P0] == 1


@POLICIES
def test_a_write_that_a_claim_confirms_ends_the_outage(policy: ClaimPolicy) -> None:
    world = World(policy)
    world.store.write_faults = [(FULL, True)]
    world.write()
    assert world.claims.unavailable == "the database is unavailable"
    with capture_logs() as events:
        world.claim()
    assert [event["event"] for event in events] == ["partition_claimed", "database_available"]
    assert world.claims.unavailable is None


@pytest.mark.parametrize("call", ["claim", "write"])
def test_the_patience_ends_an_attempt_whatever_call_fails(call: str) -> None:
    world = World(ATTEMPT)
    if call == "claim":
        world.store.claim_faults = [FULL] * 1000
    else:
        world.store.write_faults = [(FULL, False)] * 1000
    expected = r"in\[0\]: the database stayed unavailable for 300 s \(.*device\); start the job"
    with pytest.raises(RunError, match=expected):
        world.write_on()
    assert PATIENCE_SECONDS <= world.now < PATIENCE_SECONDS + 10


def test_a_table_writer_waits_without_limit() -> None:
    world = World(WRITER)
    world.store.claim_faults = [FULL] * 1000
    world.write()
    assert world.now > 1000


@POLICIES
def test_a_successor_is_reported_in_the_same_words(policy: ClaimPolicy) -> None:
    world = World(policy)
    world.store.write_faults = [(Superseded("gone", partitions=[P0]), False)] * 5
    with pytest.raises(InstanceFenced, match=r"^in\[0\] was claimed by another process") as ended:
        world.write_on()
    tries = world.store.calls.count("write")
    assert tries == policy.superseded_in_a_row == (SUPERSEDED_IN_A_ROW if policy is WRITER else 1)
    assert policy.successor in str(ended.value)


@POLICIES
def test_a_schema_registry_that_is_away_delays_rows_and_loses_none(policy: ClaimPolicy) -> None:
    def decode(data: bytes) -> Any:
        if world.now < 3:
            raise SchemaRegistryUnavailable("no answer")
        return orjson.loads(data)

    world = World(policy, value=Serde("registered", None, decode))
    while not world.store.rows.get("t"):
        world.write()
    assert world.store.rows["t"] == [{"n": 0}]
    assert world.now == 3


def test_the_patience_ends_an_attempt_without_a_schema_registry() -> None:
    def decode(data: bytes) -> Any:
        raise SchemaRegistryUnavailable("no answer")

    world = World(ATTEMPT, value=Serde("registered", None, decode))
    with pytest.raises(RunError, match=r"the schema registry stayed unavailable for 300 s"):
        world.write_on()
    assert world.now >= PATIENCE_SECONDS


def test_brokers_that_do_not_answer_a_claim_are_not_reported_as_the_database() -> None:
    world = World(WRITER, begin_faults=[Retriable("no answer")])
    with capture_logs() as events:
        world.claim()
    assert [event["event"] for event in events] == [
        "cluster_unavailable",
        "partition_claimed",
        "cluster_available",
    ]
