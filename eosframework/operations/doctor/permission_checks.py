"""The principal's permissions, compared with the needs of a worker."""

from __future__ import annotations

from collections.abc import Iterator

from eosframework.application.needed_access import (
    Access,
    merged,
    ownership_access,
    purging_access,
    tables_access,
    topic_access,
)
from eosframework.config import Guarantee, Ids
from eosframework.operations.doctor.findings import NotSeen, Observation, Severity
from eosframework.operations.doctor.remedies import grant
from eosframework.operations.doctor.snapshot import Snapshot
from eosframework.txnid import prefix, tables_group


def topics_and_group(snapshot: Snapshot) -> Iterator[Observation]:
    """Find missing permissions on topics and groups."""
    groups = {snapshot.graph.application: snapshot.group}
    if snapshot.tables_group is not None:
        groups[tables_group(snapshot.graph.application)] = snapshot.tables_group
    needed = [
        *topic_access(snapshot.graph, snapshot.sources, snapshot.sinks),
        *tables_access(snapshot.graph),
        *purging_access(snapshot.graph, snapshot.settings),
    ]
    for access in merged(needed):
        if access.kind == "Topic":
            found = snapshot.existing(access.name or "").get(access.name or "")
            allowed = found.allowed if found else None
        else:
            allowed = groups[access.name or ""].read().allowed
        yield from _missing(snapshot, access, allowed)


def registry(snapshot: Snapshot) -> Iterator[Observation]:
    """Find missing permissions on the control topic, or on the cluster to create it."""
    name = snapshot.registry
    for facts in snapshot.existing(name).values():
        needed = Access("Topic", name, ("Read", "Write", "Describe"))
        yield from _missing(snapshot, needed, facts.allowed)
        return
    allowed = snapshot.allowed_on_cluster.read()
    if Access("Cluster", None, ("Create",)).missing(allowed):
        yield Observation(
            f"topic {name}",
            "does not exist, and this principal is not allowed Create on the cluster",
            expected="Create on the topic, or the topic",
            fix="eosframework apply APP, by a principal with Create",
            severity=Severity.WARNING,
        )


def ownership(snapshot: Snapshot) -> Iterator[Observation]:
    """Find missing permissions on the ownership topic, once entries are recorded."""
    found = snapshot.facts.read().ownership
    if found is not None and found.exists:
        yield from _missing(snapshot, ownership_access(snapshot.graph.application), found.allowed)


def settings(snapshot: Snapshot) -> Iterator[Observation]:
    """Find settings that cannot be read for lack of DescribeConfigs."""
    for topic, facts in snapshot.existing().items():
        if facts.values is None:
            fix = grant(snapshot, f"--topic {topic}", "DescribeConfigs")
            yield Observation(f"topic {topic}", "DescribeConfigs is not allowed", fix=fix)


def transactional_ids(snapshot: Snapshot) -> Iterator[Observation]:
    """Find transactional ids without Write permission, for a worker that uses transactions."""
    if snapshot.settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    unseen: NotSeen | None = None
    for name, seen in snapshot.lacking.items():
        try:
            missing = seen.read()
        except NotSeen as error:
            unseen = error
            continue
        if missing:
            resource = (
                f"--transactional-id {prefix(snapshot.graph.application)} "
                "--resource-pattern-type prefixed"
            )
            if snapshot.settings.worker.ids is Ids.LEASED:
                resource = f"--transactional-id '{name}'"
            yield Observation(
                f"TransactionalId {name}",
                f"{missing} is not allowed",
                fix=grant(snapshot, resource, "Write and Describe"),
            )
    if unseen is not None:
        raise unseen


def _missing(
    snapshot: Snapshot, access: Access, allowed: frozenset[str] | None
) -> Iterator[Observation]:
    if missing := access.missing(allowed):
        resource = f"--{access.kind.lower()} {access.name}"
        yield Observation(
            f"{access.kind} {access.name}",
            f"{missing} is not allowed",
            expected=access.listed,
            fix=grant(snapshot, resource, missing),
        )


CHECKS = {
    "topic-and-group-acls": topics_and_group,
    "registry-acls": registry,
    "ownership-acls": ownership,
    "transactional-id-acls": transactional_ids,
    "settings-acls": settings,
}
