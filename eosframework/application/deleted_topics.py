"""Deletion of topics, up to the moment at which brokers no longer describe them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from eosframework.errors import ClusterUnreachable
from eosframework.kafka.admin.cluster_admin import ClusterAdmin

GONE_SECONDS = 30.0
"""The longest wait for brokers to delete topics."""


def delete_and_wait(topics: Sequence[str], admin: ClusterAdmin) -> None:
    """Delete topics, and wait until they are gone: brokers delete them a moment later.

    Raises:
        ClusterUnreachable: one is still described after `GONE_SECONDS`.
    """
    admin.delete_topics(topics)
    deadline = time.monotonic() + GONE_SECONDS
    while left := [name for name, found in admin.describe_topics(topics).items() if found.exists]:
        if time.monotonic() > deadline:
            raise ClusterUnreachable(
                f"topic {', '.join(left)} is still there {GONE_SECONDS:g} s after it was deleted; "
                f"run the same command again when it is gone"
            )
        time.sleep(0.05)
