"""Requests of a worker to the other workers of its application.

Each is one connection: the server has a deadline for a connection, and not for each of its requests
(ADR 27).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote

from eosframework.application.monitoring.http.http_server import host_and_port
from eosframework.application.monitoring.owners import Owner
from eosframework.serialization.bounds import ASKED_BYTES, PEER_SECONDS

APPLICATION, INSTANCE = "Eos-Application", "Eos-Instance"
"""Headers of each answer of `/state`: the worker that made it."""

HERE = "at=here"
"""The option of a request that no worker forwards."""

FORWARDED = ("authorization",)
"""Headers of a client that another worker, or a proxy in front of it, may need."""


class PeerSilent(Exception):
    """A worker gives no answer at its address."""


class PeerMistaken(Exception):
    """Another process than the expected worker answers at an address."""


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """The answer of another worker.

    Args:
        content: JSON.
        headers: those that are passed to the client.
    """

    status: HTTPStatus
    content: bytes
    headers: Mapping[str, str]


def key_path(store: str, key: str) -> str:
    """Return the path of a key with the option that the request is not forwarded."""
    return f"/state/{quote(store, safe='')}/{quote(key, safe='')}?{HERE}"


def ask_peer(
    application: str, owner: Owner, address: str, path: str, headers: Mapping[str, str]
) -> PeerAnswer:
    """Return the answer of a worker.

    Args:
        application: of the worker.
        owner: the worker.
        address: where it listens.
        path: with `HERE`.
        headers: of the client's request, by their names in lower case; those of `FORWARDED` are
            sent.

    Raises:
        PeerSilent: it does not answer within `PEER_SECONDS`, or not completely.
        PeerMistaken: a process of another name or application answers.
    """
    sent = {name: headers[name] for name in FORWARDED if name in headers}
    connection = HTTPConnection(*host_and_port(address), timeout=PEER_SECONDS.value)
    try:
        connection.request("GET", path, headers=sent)
        response = connection.getresponse()
        found = response.headers.get(APPLICATION), response.headers.get(INSTANCE)
        if found != (application, owner.instance):
            raise PeerMistaken(_mistaken(application, owner.instance, address, *found))
        content = response.read(ASKED_BYTES.value + 1)
    except (OSError, HTTPException, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise PeerSilent(
            f"worker {owner.instance!r} does not answer at {address} ({reason})"
        ) from error
    finally:
        connection.close()
    if len(content) > ASKED_BYTES.value:
        raise PeerSilent(f"worker {owner.instance!r} at {address} answers without an end")
    kept = {n: v for n in (APPLICATION, INSTANCE, "Retry-After") if (v := response.headers.get(n))}
    return PeerAnswer(HTTPStatus(response.status), content, kept)


def _mistaken(
    application: str, instance: str, address: str, found: str | None, other: str | None
) -> str:
    answers = "a process that is no worker" if found is None else f"{other!r} of {found!r}"
    return (
        f"worker {instance!r} of {application!r} announces {address}, where {answers} answers; set "
        f"worker.http_advertised_address of {instance!r} to an address that reaches it from every "
        f"other worker"
    )
