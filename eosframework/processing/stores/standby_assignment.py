"""Which worker keeps a copy of which task's stores: whoever would get the task next.

Workers share partitions out with the `range` assignor, which goes by the members' names alone; of
those that share a producer, whoever gets the first has all. So
each of them can compute, without asking the others, who would have which task if one member or
one machine went away, and every one of them comes to the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from eosframework.txnid import first_of


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as the group's coordinator knows it.

    Args:
        instance: its name.
        host: the machine it is connected from.
    """

    instance: str
    host: str


def owners(members: Sequence[Member], tasks: int, together: int = 1) -> list[Member]:
    """Return who has each task of a sub-topology, by partition.

    Members are sorted by the bytes of their names, as `rd_kafka_group_member_cmp` does for static
    members, and the first ones have one task more where it does not come out even
    (`rd_kafka_range_assignor_assign_cb`).
    """
    ordered = sorted(members, key=lambda member: member.instance.encode())
    if not ordered:
        return []
    each, more = divmod(tasks, len(ordered))
    counts = [each + (place < more) for place in range(len(ordered))]
    given = [member for member, count in zip(ordered, counts, strict=True) for _ in range(count)]
    return [given[first_of(partition, together)] for partition in range(tasks)]


def keepers(
    members: Sequence[Member], tasks: int, copies: int, together: int = 1
) -> list[list[Member]]:
    """Return who keeps a copy of each task's stores, by partition.

    First comes whoever gets the task when its owner's machine goes away, then whoever gets it when
    the owner does, then those that get it most often when one of the others does.

    Args:
        members: all workers.
        tasks: of one sub-topology.
        copies: of each task, at most.
        together: how many tasks share a producer.
    """
    present = owners(members, tasks, together)
    hosts = {
        m.host: owners([o for o in members if o.host != m.host], tasks, together) for m in members
    }
    alone = {m: owners([o for o in members if o != m], tasks, together) for m in members}
    chosen: list[list[Member]] = []
    for partition, owner in enumerate(present):
        others = Counter(then[partition] for then in alone.values() if then)
        ranked = [
            *(then[partition] for then in (hosts[owner.host], alone[owner]) if then),
            *sorted(others, key=lambda member: (-others[member], member.instance)),
        ]
        chosen.append([m for m in dict.fromkeys(ranked) if m != owner][:copies])
    return chosen
