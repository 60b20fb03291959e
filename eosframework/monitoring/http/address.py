"""Addresses to listen on: `host:port`, with an IPv6 host in brackets."""

from __future__ import annotations


def host_and_port(address: str) -> tuple[str, int]:
    """Return the host and port of an address that `config` has checked."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def address_of_child(address: str, number: int) -> str:
    """Return the address of one of a supervisor's children, which have consecutive ports.

    Args:
        address: of the first child; with port 0 each child takes any free port.
        number: of the child, from 0.
    """
    host, _, port = address.rpartition(":")
    return address if int(port) == 0 else f"{host}:{int(port) + number}"
