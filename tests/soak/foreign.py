"""A producer that is none of the application's, with a transaction open in its changelog."""

from __future__ import annotations

import uuid

from confluent_kafka import KafkaError, Producer

from tests.soak.recording import QUIET
from tests.support.processes.programs import run_command

_TIMEOUT_SECONDS = 30.0


class ForeignTransaction:
    """A transaction with a record in each partition of a topic; open until `end`."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self.transactional_id = f"foreign-{uuid.uuid4().hex[:8]}"
        self._bootstrap_servers = bootstrap_servers
        self._delivered = 0
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": 300_000,
            }
        )
        self._producer.init_transactions(_TIMEOUT_SECONDS)
        self._producer.begin_transaction()
        for partition in range(partitions):
            self._producer.produce(
                topic, b"foreign", b"foreign", partition, on_delivery=self._count
            )
        self._producer.flush(_TIMEOUT_SECONDS)
        assert self._delivered == partitions, f"{self._delivered} of {partitions} were taken"

    def end_by_command(self) -> None:
        """Abort it as an operator does."""
        done = run_command(
            *("txn", "abort", self.transactional_id, "--yes", "--force"),
            *("--set", f"kafka.bootstrap_servers={self._bootstrap_servers}"),
        )
        # On a busy machine its time may have passed before it is aborted.
        assert done.exit_code == 0 or "has no open transaction" in done.err, done.err

    def end(self) -> None:
        """Abort it as its producer."""
        self._producer.abort_transaction(_TIMEOUT_SECONDS)

    def _count(self, error: KafkaError | None, _: object) -> None:
        self._delivered += error is None
