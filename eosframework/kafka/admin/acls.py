"""ACLs: needed operations on a resource, and errors that name those that are missing."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
)

from eosframework.errors import StartRefused
from eosframework.kafka.admin.requests import AccessDenied
from eosframework.kafka.client.defaults import admin_properties

_INCLUDE_DESCRIBE = frozenset({"Read", "Write", "Delete", "Alter"})
"""Operations that include Describe (StandardAuthorizerData, Kafka's docs)."""

_ORDER = ("Read", "Write", "Create", "Delete", "Describe", "DescribeConfigs")

_OPTIONS = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--transactional-id",
    "Cluster": "--cluster",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Operations on one resource, or on all whose name begins so.

    Args:
        kind: as Kafka's tools write it: Topic, Group, TransactionalId or Cluster.
        name: None: the cluster, which has none.
        operations: as Kafka's tools write them, for example DescribeConfigs.
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
        """The operations to grant: those that no other one includes."""
        if _INCLUDE_DESCRIBE.isdisjoint(self.operations):
            return self.operations
        return tuple(name for name in self.operations if name != "Describe")

    @property
    def listed(self) -> str:
        """The operations to grant, for a sentence."""
        return ", ".join(self.granted)

    def missing(self, allowed: frozenset[str] | None) -> str:
        """Return the operations that are not `allowed`; empty where brokers do not say."""
        if allowed is None:
            return ""
        return " and ".join(name for name in self.granted if name not in allowed)

    def as_data(self) -> dict[str, Any]:
        """Return what to grant as plain data, for JSON."""
        return {
            "kind": self.kind,
            "name": self.name,
            "is_prefix": self.is_prefix,
            "operations": list(self.granted),
        }

    def command(self, servers: str, principal: str) -> str:
        """Return the command of Kafka's tools that grants it."""
        words = ["kafka-acls.sh", "--bootstrap-server", servers, "--add"]
        words += ["--allow-principal", principal]
        words += [word for name in self.granted for word in ("--operation", name)]
        words += [_OPTIONS[self.kind], *([] if self.name is None else [self.name])]
        words += ["--resource-pattern-type", "prefixed"] if self.is_prefix else []
        return shlex.join(words)


def merged(needed: Iterable[Access]) -> list[Access]:
    """Return one entry for each resource, in the order in which these come first."""
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
    """Raise if an ACL is missing that would be asked for later.

    Args:
        needed: what an application does.
        allowed: operations by kind and name of a resource, as brokers say; None: they do not.

    Raises:
        StartRefused: names the first operation that is missing, and the resource.
    """
    for access in needed:
        if missing := access.missing(allowed.get((access.kind, access.name))):
            what = f"{access.kind.lower()} {access.name}"
            raise StartRefused(
                f"this principal is not allowed {missing} on {what}, which the application needs; "
                f"{_grant(missing, access)}"
            )


@contextmanager
def naming_what_is_needed(needed: Sequence[Access]) -> Generator[None]:
    """Say of a resource that may not even be described what the application does with it.

    Raises:
        StartRefused: in place of the error that only says that describing is denied.
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
        f"(`eosframework plan APP` lists every ACL a worker needs)"
    )


def unwritable(
    properties: Mapping[str, Any], topics: Sequence[str], timeout_seconds: float
) -> list[str]:
    """Return those of `topics` that this principal may not write; none where nobody answers.

    Args:
        properties: a client's, of which those that reach the cluster are used.
        topics: as far as the application knows them.
        timeout_seconds: for the answer.
    """
    if not topics:
        return []
    # Any: the stubs leave the futures' results open.
    admin: Any = AdminClient(admin_properties(properties))
    answers = admin.describe_topics(
        TopicCollection(list(topics)),
        include_authorized_operations=True,
        request_timeout=timeout_seconds,
    )
    return sorted(topic for topic, answer in answers.items() if not _may_write(answer))


def _may_write(answer: Any) -> bool:
    """Tell whether a described topic may be written, as far as that is known."""
    try:
        operations = answer.result().authorized_operations
    except KafkaException as error:
        return error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED
    return operations is None or AclOperation.WRITE in operations
