"""Assignment of standby copies: the workers that would get a task next keep its copies.

Workers share partitions by the `range` assignor, which depends on the members' names alone. So each
worker can compute, without asking the others, the owner of each task if one member or one machine
failed, and all workers get the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as the group coordinator knows it.

    Args:
        instance: its instance name.
        host: the machine from which it is connected.
    """

    instance: str
    host: str


def owners(members: Sequence[Member], tasks: int) -> list[Member]:
    """Return the owner of each task of a sub-topology, by partition.

    Members are sorted by the bytes of their names, as `rd_kafka_group_member_cmp` does for static
    members, and the first ones get one more task if the number is not divisible
    (`rd_kafka_range_assignor_assign_cb`).
    """
    ordered = sorted(members, key=lambda member: member.instance.encode())
    if not ordered:
        return []
    each, more = divmod(tasks, len(ordered))
    counts = [each + (place < more) for place in range(len(ordered))]
    return [member for member, count in zip(ordered, counts, strict=True) for _ in range(count)]


def standby_members(members: Sequence[Member], tasks: int, copies: int) -> list[list[Member]]:
    """Return the workers that keep copies of each task's stores, by partition.

    First comes the owner after a failure of the current owner's machine, then the owner after a
    failure of the current owner, then the most frequent owners after the failure of any other
    worker.

    Args:
        members: all workers.
        tasks: the number of tasks of one sub-topology.
        copies: the most copies of each task.
    """
    present = owners(members, tasks)
    hosts = {m.host: owners([o for o in members if o.host != m.host], tasks) for m in members}
    alone = {m: owners([o for o in members if o != m], tasks) for m in members}
    chosen: list[list[Member]] = []
    for partition, owner in enumerate(present):
        others = Counter(then[partition] for then in alone.values() if then)
        ranked = [
            *(then[partition] for then in (hosts[owner.host], alone[owner]) if then),
            *sorted(others, key=lambda member: (-others[member], member.instance)),
        ]
        chosen.append([m for m in dict.fromkeys(ranked) if m != owner][:copies])
    return chosen
