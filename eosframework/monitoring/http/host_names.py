"""Host names by which an HTTP server may be addressed."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address


def is_accepted_host(host: str, names: Collection[str]) -> bool:
    """Return whether a request's Host header names this server.

    This prevents DNS rebinding, where a foreign site's name resolves to this address and its page
    in a browser reads the responses. Such a name is in the public DNS, so addresses, `localhost`
    and names without a dot are accepted.

    Args:
        host: of the Host header, with or without a port.
        names: accepted host names in addition, in lower case.
    """
    name = host.rpartition("]")[0].lstrip("[") or host.partition(":")[0]
    name = name.lower().rstrip(".")
    return "." not in name or name.endswith(".localhost") or name in names or _is_ip(name)


def _is_ip(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
