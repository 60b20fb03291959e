"""The transactional outbox: sends each message that a database transaction published exactly once.

The package contains the publishing functions, the relay's position (`relay_position`) and the
relay's cycle (`relay`). It imports no database driver and no Kafka client: `postgres/` and `kafka/`
implement its ports (`relay_position`).

Public: the names in `__all__`; the modules are internal.
"""

from eosframework.outbox.publication import emit, emit_async, publish, publish_async

__all__ = ["emit", "emit_async", "publish", "publish_async"]
