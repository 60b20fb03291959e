"""ACLs that the principal of a worker or relay needs on a cluster with an authorizer."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from eosframework.config import Guarantee, Settings
from eosframework.errors import StartRefused
from eosframework.kafka.admin.requests import AccessDenied
from eosframework.topology.graph.graph import Graph
from eosframework.topology.graph.patterns import literal_prefix
from eosframework.txnid import (
    TransactionalId,
    control_topic,
    effects_id,
    ownership_topic,
    prefix,
    tables_group,
)

_INCLUDE_DESCRIBE = frozenset({"Read", "Write", "Delete", "Alter"})
"""Operations that imply Describe (StandardAuthorizerData, and Kafka's documentation)."""

_ORDER = ("Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs")

_OPTIONS = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--transactional-id",
    "Cluster": "--cluster",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Operations on one resource, or on all resources whose name has a prefix.

    Args:
        kind: as Kafka's tools write it: Topic, Group, TransactionalId or Cluster.
        name: None: the cluster, which has no name.
        operations: as Kafka's tools write them, for example DescribeConfigs.
        is_prefix: `name` is a prefix of resource names.
    """

    kind: str
    name: str | None
    operations: tuple[str, ...]
    is_prefix: bool = False

    def __str__(self) -> str:
        name = "" if self.name is None else f" {self.name}"
        return f"{self.kind}{name}{'* (prefixed)' if self.is_prefix else ''}: {self.listed}"

    @property
    def granted(self) -> tuple[str, ...]:
        """Operations to grant: those that no other one of them implies."""
        if _INCLUDE_DESCRIBE.isdisjoint(self.operations):
            return self.operations
        return tuple(name for name in self.operations if name != "Describe")

    @property
    def listed(self) -> str:
        """Operations to grant, as text."""
        return ", ".join(self.granted)

    def missing(self, allowed: frozenset[str] | None) -> str:
        """Return the operations that are not in `allowed`; empty if brokers do not report them."""
        if allowed is None:
            return ""
        return " and ".join(name for name in self.granted if name not in allowed)

    def as_data(self) -> dict[str, Any]:
        """Return the operations to grant as plain data, for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "is_prefix": self.is_prefix,
            "operations": list(self.granted),
        }

    def command(self, servers: str, principal: str) -> str:
        """Return the kafka-acls.sh command that grants the access."""
        words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add"]
        words += ["--allow-principal", principal]
        words += [word for name in self.granted for word in ("--operation", name)]
        words += [_OPTIONS[self.kind], *([] if self.name is None else [self.name])]
        words += ["--resource-pattern-type", "prefixed"] if self.is_prefix else []
        return shlex.join(words)


def worker_access(
    graph: Graph,
    settings: Settings,
    sources: Sequence[str],
    sinks: Sequence[str],
    ids: Sequence[TransactionalId] | None = None,
) -> list[Access]:
    """Return all ACLs that a worker of this topology needs, and no more.

    Args:
        graph: of the application.
        settings: of its workers.
        sources: topics that it reads.
        sinks: topics that it writes.
        ids: the leased ids; None: all are derived, so a prefix covers them.
    """
    return merged(
        [
            *topic_access(graph, sources, sinks),
            *pattern_access(graph),
            *tables_access(graph),
            *purging_access(graph, settings),
            control_topic_access(graph.application),
            *([ownership_access(graph.application)] if needs_claims(graph, settings) else []),
            *_transaction_access(graph.application, settings, ids, effects=graph.effects_topics),
        ]
    )


def relay_access(settings: Settings, topics: Iterable[str]) -> list[Access]:
    """Return all ACLs that an outbox relay needs, and no more.

    Args:
        settings: of the relay.
        topics: the topics of its messages.
    """
    name = settings.outbox.name
    return [
        *map(write_access, sorted(set(topics))),
        control_topic_access(name),
        *_transaction_access(name, settings, None),
    ]


def topic_access(graph: Graph, sources: Sequence[str], sinks: Sequence[str]) -> list[Access]:
    """Return the access to the topology's topics, its changelogs and its group."""
    return [
        *(Access("Topic", topic, ("Read", "Describe")) for topic in sources),
        *(
            Access("Topic", topic, ("Read", "Describe"))
            for topic in sorted(set(graph.global_topics) - set(sources))
        ),
        *map(write_access, sinks),
        *(
            Access("Topic", store.changelog, ("Read", "Write", "Describe"))
            for part in graph.sub_topologies
            for store in part.stores
        ),
        *(Access("Topic", t, ("Read", "Write", "Describe")) for t in graph.effects_topics),
        *([Access("Group", graph.application, ("Read", "Describe"))] if sources else []),
    ]


def pattern_access(graph: Graph) -> Iterator[Access]:
    """Yield the access to the topics that patterns match, also those that do not exist yet.

    A topic that a worker may not describe is not there for it.
    """
    for one in graph.patterns:
        prefix_ = literal_prefix(one.pattern)
        yield Access("Topic", prefix_ or "*", ("Read", "Describe"), is_prefix=bool(prefix_))
    if graph.patterns:
        yield Access("Group", graph.application, ("Read", "Describe"))


def tables_access(graph: Graph) -> list[Access]:
    """Return the access of table writers to their topics and group."""
    if not graph.table_sinks:
        return []
    return [
        *(
            Access("Topic", table_sink.topic, ("Read", "Describe"))
            for table_sink in graph.table_sinks
        ),
        Access("Group", tables_group(graph.application), ("Read", "Describe")),
    ]


def purging_access(graph: Graph, settings: Settings) -> Iterator[Access]:
    """Yield the access for deleting processed records from internal topics."""
    for repartition in graph.repartitions:
        yield Access("Topic", repartition.topic, ("Delete",))
    for topic in graph.effects_topics:
        yield Access("Topic", topic, ("Delete",))
    if settings.database.keep_rows_seconds is None or settings.worker.receipts:
        return
    for table_sink in graph.table_sinks:
        if table_sink.sub_topology is not None:
            yield Access("Topic", table_sink.topic, ("Delete",))


def write_access(topic: str) -> Access:
    """Return the access to a topic that is written and not read."""
    return Access("Topic", topic, ("Write", "Describe"))


def control_topic_access(application: str) -> Access:
    """Return the access to the control topic, once it exists."""
    return Access("Topic", control_topic(application), ("Read", "Write", "Describe"))


def needs_claims(graph: Graph, settings: Settings) -> bool:
    """Return whether workers claim partitions: they do if they have transactions to fence."""
    return settings.worker.guarantee is Guarantee.EXACTLY_ONCE and bool(graph.sub_topologies)


def ownership_access(application: str) -> Access:
    """Return the access to the ownership topic."""
    return Access("Topic", ownership_topic(application), ("Read", "Write", "Describe"))


def _transaction_access(
    application: str,
    settings: Settings,
    ids: Sequence[TransactionalId] | None,
    effects: Sequence[str] = (),
) -> Iterator[Access]:
    if settings.worker.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    operations = ("Write", "Describe")
    if ids is None:
        yield Access("TransactionalId", prefix(application), operations, is_prefix=True)
    for id_ in ids or ():
        yield Access("TransactionalId", str(id_), operations)
        if effects:
            yield Access("TransactionalId", effects_id(str(id_)), operations)
    if not settings.kafka.assume_transaction_verification:
        yield Access("Cluster", None, ("DescribeConfigs",))


def merged(needed: Iterable[Access]) -> list[Access]:
    """Return one entry per resource, in the order of first occurrence."""
    operations: dict[tuple[str, str | None, bool], dict[str, None]] = {}
    for access in needed:
        resource = access.kind, access.name, access.is_prefix
        operations.setdefault(resource, {}).update(dict.fromkeys(access.operations))
    return [
        Access(kind, name, tuple(sorted(names, key=_ORDER.index)), is_prefix)
        for (kind, name, is_prefix), names in operations.items()
    ]


def refuse_denied(
    needed: Iterable[Access], allowed: Mapping[tuple[str, str | None], frozenset[str] | None]
) -> None:
    """Refuse to start if an ACL is missing that the application would need later.

    Args:
        needed: the accesses of the application.
        allowed: operations by kind and name of a resource, as brokers report them; None: they do
            not report them.

    Raises:
        StartRefused: names the first missing operation and its resource.
    """
    for access in needed:
        if missing := access.missing(allowed.get((access.kind, access.name))):
            what = f"{access.kind.lower()} {access.name}"
            raise StartRefused(
                f"this principal is not allowed {missing} on {what}, which the application needs; "
                f"{_grant(missing, access)}"
            )


@contextmanager
def naming_needed_access(needed: Sequence[Access]) -> Generator[None]:
    """Replace AccessDenied by an error that names the operations the application needs.

    Raises:
        StartRefused: a resource in `needed` may not be described.
    """
    try:
        yield
    except AccessDenied as denied:
        for access in needed:
            if (access.kind.lower(), access.name) == (denied.kind, denied.name):
                wanted = " and ".join(access.granted)
                raise StartRefused(
                    f"{denied.kind} {denied.name!r} may not be described by this principal; "
                    f"{_grant(wanted, access)}, which includes Describe"
                ) from denied
        raise


def _grant(operations: str, access: Access) -> str:
    return (
        f"grant {operations} on {access.kind} {access.name} "
        f"(`eosframework plan APP --acls` lists every ACL a worker needs)"
    )
