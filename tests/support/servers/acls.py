"""ACLs that a broker goes by: its controller accepts them a moment before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

_ANYTHING: Any = None
_ANY = AclBindingFilter(
    ResourceType.ANY,
    _ANYTHING,
    ResourcePatternType.ANY,
    _ANYTHING,
    _ANYTHING,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def wait_until_known(admin: Any, acls: Iterable[AclBinding], *, there: bool = True) -> None:
    """Wait until the broker that is asked goes by what its controller has accepted.

    Args:
        admin: asks the broker.
        acls: that were created, or deleted.
        there: whether they are to be known, or to be gone.
    """
    for acl in acls:
        wait_until(
            lambda acl=acl: _is_known(admin, acl) == there,
            f"{acl} is {'known' if there else 'gone'}",
        )


def _is_known(admin: Any, acl: AclBinding) -> bool:
    if _hides_acls(acl):
        return not admin.describe_acls(_ANY).result(60)
    known: Any = acl  # its stub leaves the types of its parts open
    sought = AclBindingFilter(
        known.restype,
        known.name,
        known.resource_pattern_type,
        known.principal,
        known.host,
        known.operation,
        known.permission_type,
    )
    return bool(admin.describe_acls(sought).result(60))


def _hides_acls(acl: AclBinding) -> bool:
    """Whether an ACL keeps whoever asks from seeing any, itself included; there are others."""
    kind = acl.restype, acl.operation, acl.permission_type
    return kind == (ResourceType.BROKER, AclOperation.DESCRIBE, AclPermissionType.DENY)
