"""A request that arrives late, after librdkafka repeated it and the caller saw success.

`tests/support/faults/stragglers.py` says what a case is. What happens without the protection was
found by running: `HARM` and `HARMLESS` together name every case, and both are asserted, so that the
tests with the protection on have something to be proud of.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from eosframework.embedded.jars import KAFKA_VERSION
from eosframework.kafka.producer.producer_states import ProducerState
from eosframework.kafka.producer.transactional import TransactionalProducer
from tests.conftest import SMALL_BROKER
from tests.support.applications.pipeline import Pipeline, Verdict, wait_until
from tests.support.faults.proxied import ProxiedCluster, proxied_kafka
from tests.support.faults.proxy import END_TXN, TXN_OFFSET_COMMIT
from tests.support.faults.stragglers import Anomaly, Case, End, Late, Moment, Result, play
from tests.support.processes.leftovers import guard_of
from tests.support.servers.kafka_versions import OLDEST_ACCEPTED
from tests.support.verifiers.observer import NEAR, Observer

Kind = tuple[Late, End, Moment]

HARM: dict[Kind, set[Anomaly]] = {
    **{
        (late, end, Moment.BEGUN): {Anomaly.UNKNOWN_OPEN}
        for late in (Late.PARTITIONS, Late.OFFSETS)
        for end in End
    },
    **{(Late.POSITION, end, Moment.WRITTEN): {Anomaly.POSITION} for end in End},
    (Late.RECORD, End.ABORT, Moment.WRITTEN): {Anomaly.ABORTED_READ, Anomaly.LOST, Anomaly.TORN},
    (Late.COMMIT, End.COMMIT, Moment.WRITTEN): {Anomaly.EARLY_READ},
    (Late.COMMIT, End.ABORT, Moment.WRITTEN): {
        Anomaly.EARLY_READ,
        Anomaly.ABORTED_READ,
        Anomaly.POSITION,
    },
    (Late.ABORT, End.COMMIT, Moment.WRITTEN): {Anomaly.LOST, Anomaly.TORN, Anomaly.POSITION},
}
"""What a request does that is late for a producer without the protection."""

_JOINS = "the transaction is open: the partition joins it, and ends with it"
_REFUSED = "no transaction is open, which the broker verifies (KIP-890): INVALID_TXN_STATE"
_ANSWERED = "the last transaction ended in this way: the coordinator answers as it did then"

HARMLESS: dict[Kind, str] = {
    **{
        (Late.INIT, end, moment): "it takes the id from its own producer, which is fenced and told"
        for end in End
        for moment in Moment
    },
    **{
        (late, end, Moment.WRITTEN): _JOINS
        for late in (Late.PARTITIONS, Late.OFFSETS)
        for end in End
    },
    **{(late, end, Moment.BEGUN): _REFUSED for late in (Late.POSITION, Late.RECORD) for end in End},
    (Late.RECORD, End.COMMIT, Moment.WRITTEN): "its sequence number is known: a duplicate",
    **{(late, end, Moment.BEGUN): _ANSWERED for late in (Late.COMMIT, Late.ABORT) for end in End},
    (Late.ABORT, End.ABORT, Moment.WRITTEN): "what it aborts too early is aborted anyway",
}
"""Where Kafka itself, or the order of things, prevents harm."""

PATIENT_BROKER = {**SMALL_BROKER, "broker.session.timeout.ms": "60000"}
"""On a busy machine a broker that is late with its heartbeats would be taken for dead, and calls of
librdkafka that were waiting for it may never return."""

RECORDS = 400
LATE_REQUESTS = 6
LONGEST_DELAY_SECONDS = 0.2
"""Of requests, while the records that were fed meanwhile are processed."""
NOTICED = ("producer_suspect", "transaction_aborted", "outcome_unknown")
"""What a worker logs before it replaces a producer."""

FENCED = frozenset({"INVALID_PRODUCER_EPOCH"})

Play = Callable[..., Result]
Clusters = Callable[..., tuple[ProxiedCluster, Observer]]


def cases(kinds: Iterable[Kind]) -> list[Any]:
    """Each kind on one broker and on three; first and later transactions in turn.

    `make test` runs one turn of each kind on one broker.
    """
    found: list[Any] = []
    for kind, nodes, first in itertools.product(kinds, (1, 3), (True, False)):
        late, end, moment = kind
        case = Case(late, end, moment, first, nodes)
        in_turn = first == ((moment is Moment.BEGUN) == (nodes == 1))
        marks = [] if in_turn and nodes == 1 else [pytest.mark.exhaustive]
        found.append(pytest.param(case, id=str(case), marks=marks))
    return found


def all_exhaustive(found: list[Any]) -> list[Any]:
    """Leave cases to `make test-all`."""
    return [pytest.param(*case.values, id=case.id, marks=pytest.mark.exhaustive) for case in found]


def cases_of_the_oldest_brokers() -> list[Any]:
    """Every kind on one broker of the oldest version that is accepted."""
    found: list[Any] = []
    for kind, first in itertools.product(HARM | HARMLESS, (True, False)):
        case = Case(*kind, first, 1, OLDEST_ACCEPTED)
        found.append(pytest.param(case, id=str(case), marks=pytest.mark.exhaustive))
    return found


@pytest.fixture(scope="module")
def clusters(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    """Brokers behind proxies by their number and version, started when first asked for."""
    guard = guard_of(request.config)
    started: dict[tuple[int, str], tuple[ProxiedCluster, Observer]] = {}
    with ExitStack() as stack:

        def get(nodes: int, version: str = KAFKA_VERSION) -> tuple[ProxiedCluster, Observer]:
            if (nodes, version) not in started:
                directory = tmp_path_factory.mktemp(f"proxied{nodes}")
                with guard.started_for("clusters"):
                    cluster = stack.enter_context(
                        proxied_kafka(
                            directory, nodes=nodes, properties=PATIENT_BROKER, version=version
                        )
                    )
                    observer = stack.enter_context(Observer(cluster.direct, nodes))
                started[nodes, version] = cluster, observer
            return started[nodes, version]

        yield get


@pytest.fixture
def play_it(clusters: Clusters, unique_name: Callable[[str], str]) -> Play:
    """Play a case on its brokers."""

    def do(case: Case, **options: Any) -> Result:
        cluster, observer = clusters(case.nodes, case.version)
        return play(cluster, observer, unique_name("late"), case, **options)

    return do


@pytest.mark.parametrize(
    "case", [*cases(HARM), *all_exhaustive(cases(HARMLESS)), *cases_of_the_oldest_brokers()]
)
def test_a_late_request_changes_nothing(case: Case, play_it: Play) -> None:
    result = play_it(case, protection=True)
    assert result.anomalies == set()
    if case.late is not Late.INIT:
        assert result.refusals == FENCED


@pytest.mark.parametrize("case", cases(HARM))
def test_without_the_protection_a_late_request_does_harm(case: Case, play_it: Play) -> None:
    result = play_it(case, protection=False)
    assert result.anomalies == HARM[case.late, case.followed_by, case.moment]
    assert result.refusals == frozenset()


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", cases(HARMLESS))
def test_where_nothing_else_is_needed_a_late_request_does_no_harm(
    case: Case, play_it: Play
) -> None:
    assert play_it(case, protection=False).anomalies == set()


def test_every_case_is_known_to_do_harm_or_not() -> None:
    assert HARM.keys().isdisjoint(HARMLESS)
    assert HARM.keys() | HARMLESS.keys() == set(itertools.product(Late, End, Moment))


def test_a_commit_over_a_broken_connection_recycles_before_it_returns(
    clusters: Clusters, unique_name: Callable[[str], str]
) -> None:
    cluster, _ = clusters(1)
    [near, _] = NEAR
    producer = TransactionalProducer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": unique_name("late")}
    )
    producer.init_transactions(60)

    def commit() -> bool:
        """Commit something, and tell whether the producer was replaced."""
        before = producer.produce
        with producer.transaction(60):
            producer.produce(near.topic, b"value", partition=near.number)
        assert producer.state is ProducerState.READY
        return producer.produce != before

    assert not commit(), "a commit without a fault must not replace the producer"
    held = cluster.hold(END_TXN, producer.transactional_id.encode())
    assert commit()
    assert held.came
    producer.close()


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_late_requests_of_a_running_worker_change_nothing(
    nodes: int,
    clusters: Clusters,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    cluster, _ = clusters(nodes)
    name = unique_name("app")
    pipeline = Pipeline(cluster.direct, name, tmp_path / name, replication_factor=nodes)
    try:
        worker = pipeline.start_worker(
            settings=[f"kafka.bootstrap_servers={cluster.bootstrap_servers}"]
        )
        pipeline.feed(RECORDS)
        wait_until(lambda: pipeline.committed() == RECORDS, "the first records")
        for number in range(1, LATE_REQUESTS + 1):
            held = cluster.hold((END_TXN, TXN_OFFSET_COMMIT)[number % 2], name.encode())
            pipeline.feed(RECORDS)
            held.wait()
            pipeline.feed(RECORDS)
            threading.Event().wait(random.uniform(0, LONGEST_DELAY_SECONDS))
            held.deliver()
            fed = (2 * number + 1) * RECORDS
            wait_until(lambda fed=fed: pipeline.committed() == fed, f"{fed} records")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.log[-3000:]
        assert sum(len(worker.events(event)) for event in NOTICED) >= LATE_REQUESTS
        assert pipeline.verify() == Verdict()
        assert pipeline.nothing_is_open()
    finally:
        cluster.holds.clear()
        pipeline.stop()
