"""ACLs that a broker goes by: its controller accepts them a moment before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.kafka_admin import AclBinding, AclBindingFilter
from tests.support.waiting import wait_until


def wait_until_known(admin: Any, acls: Iterable[AclBinding], *, there: bool = True) -> None:
    """Wait until the broker that is asked goes by what its controller has accepted.

    Args:
        admin: asks the broker.
        acls: that were created, or deleted.
        there: whether they are to be known, or to be gone.
    """
    for acl in acls:
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
        wait_until(
            lambda sought=sought: bool(admin.describe_acls(sought).result(60)) == there,
            f"{acl} is {'known' if there else 'gone'}",
        )
