"""The transaction coordinator fails in each window of a commit; another one takes over."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from eosframework.kafka.inspect.coordinators import TransactionDescription
from eosframework.kafka.inspect.formats import CONSUMER_OFFSETS, TxnState
from eosframework.records import TopicPartition
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.servers.three_brokers import REPLICAS, Failure, ThreeBrokers

RECORDS = 1000

Replicated = Callable[..., Pipeline]

each_failure = pytest.mark.parametrize(
    ("failure", "producers"),
    [
        (Failure.KILLED, "partition"),
        pytest.param(Failure.KILLED, "worker", marks=pytest.mark.exhaustive),
        pytest.param(Failure.STOPPED, "partition", marks=pytest.mark.exhaustive),
    ],
)
"""With a producer for each partition, and with one for all."""


@pytest.mark.exhaustive
@each_failure
def test_a_commit_outlives_a_coordinator_that_fails_before_it_is_prepared(
    brokers: ThreeBrokers, replicated: Replicated, failure: Failure, producers: str
) -> None:
    pipeline = replicated()
    worker = hold_under_load(pipeline, "transaction.before_commit", producers)
    held = the_open_one(brokers, worker)
    assert held.state is TxnState.ONGOING
    assert takes_offsets(held)

    brokers.fail(held.coordinator_id, failure)
    worker.release()

    goes_on_without(brokers, held, pipeline)
    ends_clean(brokers, held, pipeline, worker)


@pytest.mark.exhaustive
@each_failure
def test_a_new_coordinator_finishes_a_commit_that_the_old_one_had_only_prepared(
    brokers: ThreeBrokers, replicated: Replicated, failure: Failure, producers: str
) -> None:
    """The marker of one output needs three replicas in sync while there are two."""
    pipeline = replicated()
    worker = hold_the_first(pipeline, "transaction.before_commit", producers)
    tripled = f"{pipeline.name}.tripled"
    held = the_open_one(brokers, worker)
    partition = next(p for p in held.partitions if p.topic == tripled)
    wait_until(lambda: delivered(brokers, pipeline) == {1}, "the delivery of what is held")

    brokers.require_in_sync(tripled, REPLICAS)
    bystander = another_than(brokers, held.coordinator_id, brokers.leader(*partition))
    brokers.fail(bystander, Failure.STOPPED)
    wait_until(lambda: bystander not in brokers.in_sync(*partition), "a replica out of sync")
    worker.release()
    wait_until(
        lambda: brokers.transaction(held.transactional_id).state is TxnState.PREPARE_COMMIT,
        "a prepared commit",
    )
    prepared = brokers.transaction(held.transactional_id)
    assert prepared.coordinator_id == held.coordinator_id
    assert partition in prepared.partitions, "its marker was written"
    assert brokers.ask(lambda wire: wire.last_stable_offsets([partition])) == {partition: 0}

    brokers.fail(held.coordinator_id, failure)
    brokers.resume(bystander)
    assert brokers.transaction(held.transactional_id).state is TxnState.PREPARE_COMMIT
    brokers.require_in_sync(tripled, REPLICAS - 1)

    wait_until(
        lambda: brokers.transaction(held.transactional_id).state is TxnState.COMPLETE_COMMIT,
        "the end of what was prepared",
    )
    goes_on_without(brokers, held, pipeline)
    ends_clean(brokers, held, pipeline, worker)


@pytest.mark.exhaustive
@each_failure
def test_the_next_transaction_begins_at_a_new_coordinator_when_the_old_one_fails_after_a_commit(
    brokers: ThreeBrokers, replicated: Replicated, failure: Failure, producers: str
) -> None:
    pipeline = replicated()
    worker = hold_under_load(pipeline, "transaction.after_commit", producers)
    names = worker.ids()
    wait_until(lambda: are(brokers, names, TxnState.COMPLETE_COMMIT), "complete commits only")
    held = brokers.transaction(names[0])

    brokers.fail(held.coordinator_id, failure)
    worker.release()

    goes_on_without(brokers, held, pipeline)
    ends_clean(brokers, held, pipeline, worker)


def hold_under_load(pipeline: Pipeline, point: str, producers: str) -> WorkerProcess:
    """Start a worker, and feed it until a later one of its transactions is held."""
    worker = start_held(pipeline, f"{point}=hold@6", producers)
    worker.wait_for_event("task_assigned", pipeline.partitions)

    def held() -> bool:
        pipeline.feed(RECORDS)
        return worker.fired(point)

    wait_until(held, f"fault {point}")
    return worker


def hold_the_first(pipeline: Pipeline, point: str, producers: str) -> WorkerProcess:
    """Start a worker, and give it one record, whose transaction is held."""
    slow_to_expire = "worker.transaction_timeout_seconds=300"
    worker = start_held(pipeline, f"{point}=hold", producers, slow_to_expire)
    worker.wait_for_event("task_assigned", pipeline.partitions)
    pipeline.feed(1)
    worker.wait_for_fault(point)
    return worker


def start_held(pipeline: Pipeline, fault: str, producers: str, *more: str) -> WorkerProcess:
    settings = [f"worker.ids={producers}", *more]
    return pipeline.start_worker(faults=[fault], settings=settings)


def the_open_one(brokers: ThreeBrokers, worker: WorkerProcess) -> TransactionDescription:
    """The transaction that is held, when those committed in the same round are complete."""
    found: list[TransactionDescription] = []

    def alone() -> bool:
        found[:] = [t for t in brokers.transactions(worker.ids()) if t.is_open]
        return len(found) == 1

    wait_until(alone, "one open transaction")
    return found[0]


def takes_offsets(transaction: TransactionDescription) -> bool:
    return any(partition.topic == CONSUMER_OFFSETS for partition in transaction.partitions)


def are(brokers: ThreeBrokers, names: list[str], state: TxnState) -> bool:
    return all(transaction.state is state for transaction in brokers.transactions(names))


def delivered(brokers: ThreeBrokers, pipeline: Pipeline) -> set[int]:
    """How many records each output has, whether their transactions are decided or not."""
    ends = brokers.ask(
        lambda wire: [
            wire.high_watermarks(TopicPartition(topic, p) for p in range(pipeline.partitions))
            for topic in pipeline.outputs
        ]
    )
    return {sum(of_topic.values()) for of_topic in ends}


def another_than(brokers: ThreeBrokers, *node_ids: int) -> int:
    return next(node.id for node in brokers.cluster.nodes if node.id not in node_ids)


def goes_on_without(
    brokers: ThreeBrokers, held: TransactionDescription, pipeline: Pipeline
) -> None:
    """Two brokers are enough to take over the id and to commit whatever comes."""
    name = held.transactional_id
    wait_until(
        lambda: brokers.transaction(name).coordinator_id != held.coordinator_id,
        "another coordinator",
    )
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "commits without the old coordinator")


def ends_clean(
    brokers: ThreeBrokers, held: TransactionDescription, pipeline: Pipeline, worker: WorkerProcess
) -> None:
    """The old coordinator comes back and changes nothing."""
    brokers.bring_back(held.coordinator_id)
    pipeline.feed(RECORDS)
    wait_until(lambda: pipeline.committed() == pipeline.fed, "all records")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.log[-3000:]
    names = worker.ids()
    wait_until(
        lambda: not any(transaction.is_open for transaction in brokers.transactions(names)),
        "the end of every transaction",
    )
    verdict = pipeline.verify()
    assert verdict.clean, verdict
