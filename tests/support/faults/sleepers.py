"""Producers that sleep in front of their EndTxn, as a stopped worker does."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import KafkaError, KafkaException, Producer

from eosframework.application.context import ApplicationContext
from eosframework.application.ownership_topic import ownership_entry, ownership_of
from eosframework.transactions.ownership import Claim, add_entries


def claim(
    context: ApplicationContext, source: str, partition: int, id_: str, part: str = "part"
) -> None:
    """Add the entry of a worker, which it adds before it inits its id."""
    with closing(ownership_of(context)) as topic:
        context.control_topic.write(ownership_entry(topic.ensure()))
        context.control_topic.refresh()
        add_entries(topic, [Claim(part, partition, (source,), id_, f"test.{id_}")])


class Sleeper:
    """The owner of a transactional.id, with a record written and not committed.

    Args:
        bootstrap_servers: of the cluster.
        transactional_id: the id.
        topic: gets a record.
        value: of this record.
        key: of this record.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        transactional_id: str,
        topic: str,
        value: bytes = b"{}",
        key: bytes = b"sleeper",
    ) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id}
        )
        self._producer.init_transactions(60)
        self._producer.begin_transaction()
        self._producer.produce(topic, value, key, 0)
        assert self._producer.flush(60) == 0

    def is_fenced(self) -> bool:
        """Wake up: commit, and tell whether the broker refuses."""
        try:
            self._producer.commit_transaction(60)
        except KafkaException as error:
            return error.args[0].code() == KafkaError._FENCED
        return False
