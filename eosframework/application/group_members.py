"""Members of an application's consumer group that are no workers, and the offsets they commit.

Workers commit offsets with metadata (`Progress`). An offset without it, in a partition that the
application has committed, is that of another consumer: records before it may not have taken effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from eosframework.engine.task.offsets import Progress
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.consumer.group import is_worker
from eosframework.records import Position, TopicPartition


def strangers(group: GroupDescription) -> list[str]:
    """Return the members of a group that are no workers, with their clients, sorted."""
    hosts = [member.host for member in group.members] or [""] * len(group.client_ids)
    return sorted(
        {
            f"client.id {client} at {host}" if host else f"client.id {client}"
            for client, host in zip(group.client_ids, hosts, strict=True)
            if not is_worker(client)
        }
    )


def foreign_offsets(
    committed: Iterable[Position], own: Collection[TopicPartition] | None = None
) -> list[Position]:
    """Return the offsets that another consumer committed.

    Args:
        committed: as the group has them.
        own: partitions that the application has committed; None: all.
    """
    return [
        p
        for p in committed
        if p.offset is not None
        and (own is None or p.topic_partition in own)
        and not Progress.is_in(p.metadata)
    ]


def foreign_offsets_error(
    foreign: Sequence[Position],
    members: Sequence[str],
    seen: Mapping[TopicPartition, int | None] | None = None,
) -> str:
    """Return the message about offsets that another consumer committed.

    Args:
        foreign: these offsets.
        members: of the group that are no workers, now or when they were last seen.
        seen: the last own offset that was seen, by partition.
    """
    names = ", ".join(f"{p.topic_partition}={p.offset}" for p in foreign)
    own = [
        f"{p.topic_partition}={offset}"
        for p in foreign
        if (offset := (seen or {}).get(p.topic_partition)) is not None
    ]
    whose = (
        f"a member of its group that is no worker: {', '.join(members)}"
        if members
        else "a consumer that is no longer a member, or a command such as kafka-consumer-groups"
    )
    last = f" The last own offsets seen are {', '.join(own)}." if own else ""
    examples = " ".join(f"'{p.topic_partition}=OFFSET'" for p in foreign[:2])
    return (
        f"the committed offsets {names} are not those of this application: {whose} committed "
        f"them. Records before them may not have been processed.{last} Stop that consumer or give "
        f"it a group of its own, stop all workers, find the last input that took effect, and set "
        f"where to go on: eosframework positions set APP {examples}"
    )
