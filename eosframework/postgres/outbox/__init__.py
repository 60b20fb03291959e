"""The transactional outbox: sends each message that a database transaction published exactly once.

Owns the publishing functions, the relay's position (`relay_position`) and cycle (`relay`). It
imports no database driver and no Kafka client: `postgres/database/` and `kafka/` implement its
ports.

Public: the names in `__all__`; the modules are internal.
"""

from eosframework.postgres.outbox.publication import emit, emit_async, publish, publish_async

__all__ = ["emit", "emit_async", "publish", "publish_async"]
