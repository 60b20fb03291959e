"""The outbox: messages that a user's database transaction publishes, carried to Kafka once each.

It owns how to publish, how far the outbox is final (`frontier`), where a relay goes on
(`position`) and the relay's cycle (`relay`); its ports stand beside it. It knows no database and
no Kafka client: `postgres/` and `kafka/` implement the ports.
"""

from eosframework.outbox.publication import emit, publish, statement

__all__ = ["emit", "publish", "statement"]
