"""The producer with which tests write inputs whose order matters."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer


def feeder(bootstrap_servers: str, **properties: Any) -> Producer:
    """Return a producer that keeps the order of what it is given.

    Without idempotence a batch whose first sending failed, as right after a topic was made, comes
    after the next one.
    """
    return Producer(
        {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, **properties}
    )
