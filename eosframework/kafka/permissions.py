"""What a principal may not do: refused by name before it is needed, or found out afterwards."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
)

from eosframework.errors import StartRefused
from eosframework.kafka.access import Access
from eosframework.kafka.asking import AccessDenied
from eosframework.kafka.defaults import admin_properties


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
