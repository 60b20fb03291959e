"""One request that arrives late, in the next transaction, and what readers then see.

A case is played by a small worker: transactions write to two topics and commit a position, and
what failed is repeated unless its position was committed. T1 sends the request that is held and
repeated; it arrives in T2. Partitions in brackets are those that a transaction writes to:

    T0 [near]  only where T1 is not the producer's first transaction
    T1 [near, far]  ends as the case says; its far partitions need connections opened after begin
    T2 [near] positions ── the request arrives here, or right after begin ── [far] end

`Observer` judges by what readers, the group's offsets and the coordinator say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from eosframework.embedded.jars import KAFKA_VERSION
from eosframework.errors import TransactionAborted
from eosframework.kafka.producer.producer_states import ProducerState
from eosframework.kafka.producer.transactional import TransactionalProducer
from tests.support.faults import proxy
from tests.support.faults.proxied import ProxiedCluster
from tests.support.faults.proxy import HeldRequest
from tests.support.processes.waiting import wait_until
from tests.support.verifiers.observer import FAR, NEAR, Observer, Partition, Seen

POSITIONS = 10
"""How far each transaction moves the committed position."""

ATTEMPTS = 4


class Late(StrEnum):
    """The request that arrives late."""

    INIT = "InitProducerId"
    PARTITIONS = "AddPartitionsToTxn"
    OFFSETS = "AddOffsetsToTxn"
    POSITION = "TxnOffsetCommit"
    RECORD = "Produce"
    COMMIT = "EndTxn-commit"
    ABORT = "EndTxn-abort"


API_KEYS = {
    Late.INIT: proxy.INIT_PRODUCER_ID,
    Late.PARTITIONS: proxy.ADD_PARTITIONS,
    Late.OFFSETS: proxy.ADD_OFFSETS,
    Late.POSITION: proxy.TXN_OFFSET_COMMIT,
    Late.RECORD: proxy.PRODUCE,
    Late.COMMIT: proxy.END_TXN,
    Late.ABORT: proxy.END_TXN,
}


class End(StrEnum):
    """How a transaction ends."""

    COMMIT = "commit"
    ABORT = "abort"


class Moment(StrEnum):
    """When in T2 the request arrives."""

    BEGUN = "begun"
    WRITTEN = "written"


class Anomaly(StrEnum):
    """What must not be seen."""

    ABORTED_READ = "a record of an aborted transaction"
    EARLY_READ = "a record of a transaction that has not ended"
    LOST = "a record missing of a committed transaction"
    TORN = "a part of a transaction"
    DOUBLED = "a record twice"
    POSITION = "a committed position that is not that of the records"
    UNKNOWN_OPEN = "an open transaction that the application has not begun"
    LEFT_OPEN = "a transaction that nobody ends"


@dataclass(frozen=True)
class Case:
    """Which request is late, after what, into what.

    Args:
        followed_by: the end of T1, in which the request was sent. Where the request is that end
            itself: the end of T2.
        first: T1 is the first transaction of a fresh producer.
        version: of the brokers.
    """

    late: Late
    followed_by: End
    moment: Moment
    first: bool
    nodes: int
    version: str = KAFKA_VERSION

    def __str__(self) -> str:
        position = "first" if self.first else "later"
        name = f"{self.late}-{self.followed_by}-{self.moment}-{position}-{self.nodes}"
        return name if self.version == KAFKA_VERSION else f"{name}-{self.version}"

    @property
    def ends(self) -> tuple[End, End]:
        """The ends of T1 and T2."""
        match self.late:
            case Late.COMMIT:
                return End.COMMIT, self.followed_by
            case Late.ABORT:
                return End.ABORT, self.followed_by
            case _:
                return self.followed_by, End.COMMIT

    @property
    def is_purged_record(self) -> bool:
        """Whether the request holds a record that an abort purged, so that it was never sent."""
        return self.late is Late.RECORD and self.followed_by is End.ABORT


@dataclass
class Result:
    """What came of a case.

    Args:
        refusals: errors in the broker's answer to the late request.
    """

    anomalies: set[Anomaly] = field(default_factory=set[Anomaly])
    refusals: frozenset[str] = frozenset()


def play(
    cluster: ProxiedCluster,
    observer: Observer,
    transactional_id: str,
    case: Case,
    *,
    protection: bool,
) -> Result:
    """Play a case and judge it; afterwards nothing is open or held.

    Args:
        cluster: of which the producer sees only the proxies.
        observer: of the same cluster.
        transactional_id: that nothing else uses, nor those that begin with it.
        case: what is late, and when it arrives.
        protection: whether the producer is protected.
    """
    # A record that is to be purged has to be queued again, not in flight, when the abort begins.
    backoff_ms = 500 if case.is_purged_record else 10
    for number in range(1, ATTEMPTS + 1):
        statistics: list[str] = []
        producer = TransactionalProducer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": f"{transactional_id}.{number}",
                "reconnect.backoff.ms": backoff_ms,
                "reconnect.backoff.max.ms": 5 * backoff_ms,
                "statistics.interval.ms": 50,
                "stats_cb": statistics.append,
            },
            protection=protection,
        )
        try:
            return _Play(cluster, observer, producer, case, statistics).run()
        except _NotPurgedError:
            continue
        finally:
            cluster.holds.clear()
            _close(cluster, producer)
    raise AssertionError(f"{case}: in {ATTEMPTS} attempts the abort never found its record queued")


def _close(cluster: ProxiedCluster, producer: TransactionalProducer) -> None:
    """Close it, and end what it has open."""
    producer.close()
    ending = Producer(
        {"bootstrap.servers": cluster.direct, "transactional.id": producer.transactional_id}
    )
    ending.init_transactions(60)
    ending.close()


class _NotPurgedError(Exception):
    """The record to be purged was in flight, so that the fault did not take place.

    held.came ──► abort purges what is queued: nothing ──► librdkafka sees the connection break
    ──► it queues the record again, and the abort waits until it expires
    """


@dataclass
class _Attempt:
    name: str
    position: int
    position_sent: bool = False
    written: list[Partition] = field(default_factory=list[Partition])

    def value(self, partition: Partition) -> bytes:
        return f"{self.name}@{partition.topic}.{partition.number}".encode()


class _Play:
    def __init__(
        self,
        cluster: ProxiedCluster,
        observer: Observer,
        producer: TransactionalProducer,
        case: Case,
        statistics: list[str],
    ) -> None:
        self._cluster = cluster
        self._statistics = statistics
        self._observer = observer
        self._producer = producer
        self._name = producer.transactional_id
        self._case = case
        self._result = Result()
        self._starts = observer.ends()
        self._position = observer.position()
        self._committed: list[_Attempt] = []

    def run(self) -> Result:
        first_end, second_end = self._case.ends
        held = self._take_id()
        if not self._case.first:
            self._finish(self._begin(0), NEAR, End.COMMIT)
        if held is None:
            held = self._hold()
        self._first(held, first_end)
        held.wait(0)
        self._second(held, second_end)
        self._judge()
        return self._result

    def _take_id(self) -> HeldRequest | None:
        """Init, and for a late init also that of a replacement; return what was held of it."""
        if self._case.late is not Late.INIT:
            self._producer.init_transactions(60)
            return None
        if not self._case.first:
            self._producer.init_transactions(60)
        held = self._hold()
        if self._case.first:
            self._producer.init_transactions(60)
        else:
            self._producer.recycle(60)
        return held

    def _hold(self) -> HeldRequest:
        what = self._name.encode()
        if self._case.late is Late.RECORD:
            what = _Attempt(f"{self._name}.T1.1", 0).value(NEAR[0])
        return self._cluster.hold(
            API_KEYS[self._case.late], what, repeated=self._case.is_purged_record
        )

    def _first(self, held: HeldRequest, end: End) -> None:
        attempt = self._begin(1)
        if not self._case.is_purged_record:
            self._finish(attempt, (*NEAR, *FAR), end)
            return
        before = self._disconnects()
        ends: list[KafkaError | None] = []
        self._write(attempt, NEAR[:1], on_delivery=lambda error, _: ends.append(error))
        self._producer.poll(0)
        held.wait()
        wait_until(lambda: self._disconnects() > before, "librdkafka's notice of the break")
        self._producer.abort_transaction(60)
        held.let_repetitions_pass()
        if any(error and error.code() == KafkaError._MSG_TIMED_OUT for error in ends):
            raise _NotPurgedError

    def _disconnects(self) -> int:
        """How many connections have broken, as librdkafka says from now on."""
        self._statistics.clear()

        def told() -> bool:
            self._producer.poll(0)
            return bool(self._statistics)

        wait_until(told, "librdkafka's statistics")
        brokers = json.loads(self._statistics[-1])["brokers"]
        return sum(broker["disconnects"] for broker in brokers.values())

    def _second(self, held: HeldRequest, end: End) -> None:
        attempt = self._begin(2)
        if self._case.moment is Moment.WRITTEN:
            self._write_with_arrival(attempt, held)
        else:
            self._arrive(held)
            if self._observer.is_open(self._name):
                self._result.anomalies.add(Anomaly.UNKNOWN_OPEN)
        if any(v.startswith(attempt.name.encode()) for v in self._look().values_of_all()):
            self._result.anomalies.add(Anomaly.EARLY_READ)
        rest = FAR if self._case.moment is Moment.WRITTEN else (*NEAR, *FAR)
        try:
            self._finish(attempt, rest, end)
        except KafkaException as error:
            self._again(attempt, error)

    def _write_with_arrival(self, attempt: _Attempt, held: HeldRequest) -> None:
        if self._case.is_purged_record:
            # The late record has the sequence number of this one, and must be there before it.
            overtaken = self._cluster.hold(proxy.PRODUCE, attempt.value(NEAR[0]), repeated=True)
            self._write(attempt, NEAR)
            self._producer.poll(0)
            overtaken.wait()
            self._arrive(held)
            overtaken.let_repetitions_pass()
            self._producer.flush(60)
            self._send_position(attempt)
            return
        self._write(attempt, NEAR)
        self._producer.flush(60)
        self._send_position(attempt)
        self._arrive(held)

    def _arrive(self, held: HeldRequest) -> None:
        """Deliver when the last transaction has ended: until then brokers refuse any next one."""
        self._observer.wait_until_settled(self._name)
        self._result.refusals = held.deliver()
        self._observer.wait_until_settled(self._name)

    def _begin(self, transaction: int, number: int = 1) -> _Attempt:
        self._producer.begin_transaction()
        position = self._position + (transaction + 1) * POSITIONS
        return _Attempt(f"{self._name}.T{transaction}.{number}", position)

    def _write(self, attempt: _Attempt, partitions: Sequence[Partition], **more: Any) -> None:
        for partition in partitions:
            self._producer.produce(
                partition.topic, attempt.value(partition), partition=partition.number, **more
            )
            attempt.written.append(partition)

    def _send_position(self, attempt: _Attempt) -> None:
        attempt.position_sent = True
        positions, membership = self._observer.to_commit(attempt.position)
        self._producer.send_offsets_to_transaction(positions, membership, 60)

    def _finish(self, attempt: _Attempt, partitions: Sequence[Partition], end: End) -> None:
        self._write(attempt, partitions)
        if not attempt.position_sent:
            self._send_position(attempt)
        if end is End.ABORT:
            self._producer.flush(60)
            self._producer.abort_transaction(60)
        else:
            self._producer.commit_transaction(60)
            self._committed.append(attempt)

    def _again(self, attempt: _Attempt, error: KafkaException) -> None:
        """Recover as a worker does: take the id again, then believe the committed position."""
        for number in range(2, ATTEMPTS + 1):
            if isinstance(error, TransactionAborted):
                with suppress(KafkaException):
                    self._producer.abort_transaction(60)
            if self._producer.state is not ProducerState.READY:
                self._producer.recycle(60)
            if self._observer.position() == attempt.position:
                self._committed.append(attempt)
                return
            if self._case.ends[1] is End.ABORT:
                return
            attempt = self._begin(2, number)
            try:
                self._finish(attempt, (*NEAR, *FAR), End.COMMIT)
            except KafkaException as again:
                error = again
            else:
                return
        raise AssertionError(f"{ATTEMPTS} attempts failed; the last one: {error}")

    def _look(self) -> Seen:
        return self._observer.read(self._starts)

    def _judge(self) -> None:
        found = self._result.anomalies
        if not self._observer.is_all_ended(self._name):
            found.add(Anomaly.LEFT_OPEN)
        seen = Counter(self._look().values_of_all())
        expected = {a.name: {a.value(p) for p in a.written} for a in self._committed}
        wanted: set[bytes] = set().union(*expected.values())
        if seen.keys() - wanted:
            found.add(Anomaly.ABORTED_READ)
        if wanted - seen.keys():
            found.add(Anomaly.LOST)
        if any(values & seen.keys() and values - seen.keys() for values in expected.values()):
            found.add(Anomaly.TORN)
        if any(count > 1 for count in seen.values()):
            found.add(Anomaly.DOUBLED)
        position = self._committed[-1].position if self._committed else self._position
        if self._observer.position() != position:
            found.add(Anomaly.POSITION)
