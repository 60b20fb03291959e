"""ACLs that a broker goes by: its controller accepts them a moment before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.support.waiting import wait_until

_ANY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
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
    sought = AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
    return bool(admin.describe_acls(sought).result(60))


def _hides_acls(acl: AclBinding) -> bool:
    """Whether an ACL keeps whoever asks from seeing any, itself included; there are others."""
    kind = acl.restype, acl.operation, acl.permission_type
    return kind == (ResourceType.BROKER, AclOperation.DESCRIBE, AclPermissionType.DENY)
