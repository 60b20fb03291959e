"""Takes what an application keeps for itself out of a cluster, in steps that may be repeated.

    R1  refuse while its groups have members
    R2  mark the registry: no worker starts before the reset is through, and one that had started
        and was no member meanwhile takes nothing over
    R3  init every id under which it wrote or may write: what is open is ended, and whoever sleeps
        is fenced, so that he writes nothing into topics that are made again
    R4  delete its groups, and with them its positions; brokers refuse that while there are members
    R5  delete its own topics, and see that they are gone
    R6  commit the positions that were asked for
    R7  take out of the registry what was remembered, and say last that the reset is through

Ids that were in use stay in the registry, so that takeovers go on fencing them; so does what others
keep there, relays for example.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eosframework import failpoints
from eosframework.application.control_topic import (
    RESET,
    Registered,
    Registry,
    committed_key,
    topic_key,
)
from eosframework.application.fencing import IdsOf, fence, refuse_members
from eosframework.config import Settings
from eosframework.errors import ClusterUnreachable, StartRefused
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.records import Position

FORGOTTEN = ("topic", "committed", "topology", "backfill")
"""Kinds of entries of the registry that say what the application has done."""

RESET_IT = "the application is reset"

GONE_SECONDS = 30.0
"""How long brokers are given to delete topics."""


@dataclass(frozen=True, slots=True)
class KafkaReset:
    """What is taken out of a cluster.

    Args:
        groups: that are deleted.
        topics: that exist and are deleted.
        ids: that are fenced, as far as they are known before that.
        ids_of: gives all of them, once nothing hides the registry's end.
        entries: keys that are taken out of the registry.
        positions: where source partitions go on; others as if the application had never run.
        topic_ids: of the topics of these positions, with their number of partitions.
    """

    application: str
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    ids: tuple[str, ...]
    ids_of: IdsOf
    entries: tuple[str, ...]
    positions: tuple[Position, ...] = ()
    topic_ids: Mapping[str, tuple[str, int]] | None = None


def refuse_unfinished_reset(application: str, registered: Registered) -> None:
    """Raise if a reset was interrupted: half of the state would meet the other half's positions.

    Raises:
        StartRefused: says how it is finished.
    """
    if "begun_at" in registered.entries.get(RESET, {}):
        raise StartRefused(
            f"a reset of application {application!r} was begun and is not through, so its state "
            f"and its positions do not fit together; finish it: eosframework reset APP"
        )


def take_out(
    reset: KafkaReset, settings: Settings, admin: ClusterAdmin, registry: Registry
) -> None:
    """Carry R1 to R5 out; whatever interrupts it, it may be done again.

    Raises:
        StartRefused: there are members.
        TransactionError: an id could not be inited.
        ClusterUnreachable: nobody answered in time.
    """
    refuse_members(reset.groups, admin, RESET_IT)
    registry.ensure()
    registry.write({RESET: {"begun_at": round(time.time() * 1000)}})
    failpoints.hit("reset.after_mark")
    fence(reset.ids_of, settings, registry)
    failpoints.hit("reset.after_fence")
    for group in reset.groups:
        if not admin.delete_group(group):
            raise StartRefused(
                f"group {group!r} got a member while the application was reset; stop it, and "
                f"finish the reset: eosframework reset APP"
            )
    failpoints.hit("reset.after_groups")
    if reset.topics:
        admin.delete_topics(reset.topics)
        _wait_until_gone(reset.topics, admin)
    failpoints.hit("reset.after_topics")


def start_again(reset: KafkaReset, admin: ClusterAdmin, registry: Registry) -> None:
    """Carry R6 and R7 out: from here on workers may start.

    Raises:
        ConfigurationError: a worker has joined meanwhile; do the reset again.
        ClusterUnreachable: nobody answered in time.
    """
    if reset.positions:
        admin.commit(reset.application, reset.positions)
    failpoints.hit("reset.after_positions")
    known = registry.refresh().entries
    forgotten = {key: None for key in known if key.partition("/")[0] in FORGOTTEN}
    registry.write(forgotten)
    remembered: dict[str, object] = {}
    readers = registry.state.owners
    for position in reset.positions:
        topic_id, count = (reset.topic_ids or {})[position.topic]
        remembered[topic_key(position.topic)] = {"topic_id": topic_id, "partitions": count}
        for name in readers.get(position.topic, ()):
            key = committed_key(name, position.topic_partition)
            remembered[key] = {"topic_id": topic_id}
    registry.write({**remembered, RESET: {"done_at": round(time.time() * 1000)}})
    registry.refresh()


def _wait_until_gone(topics: Sequence[str], admin: ClusterAdmin) -> None:
    """Return once brokers know nothing of topics any more: they delete them a moment later."""
    deadline = time.monotonic() + GONE_SECONDS
    while left := [name for name, found in admin.describe_topics(topics).items() if found.exists]:
        if time.monotonic() > deadline:
            raise ClusterUnreachable(
                f"topic {', '.join(left)} is still there {GONE_SECONDS:g} s after it was deleted; "
                f"do the reset again when it is gone"
            )
        time.sleep(0.05)
