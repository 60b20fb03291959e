"""Where a worker listens: `host:port`, an IPv6 host in brackets."""

from __future__ import annotations


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address that `config` has checked."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def address_of_child(address: str, number: int) -> str:
    """Return the address of one of several workers on a machine: ports follow one another.

    Args:
        address: of the first one; port 0 is any free one for all of them.
        number: of the worker, from 0 on.
    """
    host, _, port = address.rpartition(":")
    return address if int(port) == 0 else f"{host}:{int(port) + number}"
