"""The part of the snapshot that only kafka-python can ask for: transactions, clock, versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eosframework.config import KafkaSettings
from eosframework.errors import EosError
from eosframework.kafka.admin.requests import REQUEST_FAILED
from eosframework.kafka.inspect.coordinators import (
    TransactionListing,
    list_transactions,
    require_authority,
)
from eosframework.kafka.inspect.formats import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    coordinator_partition,
)
from eosframework.kafka.inspect.hanging import OpenTransaction, find_open
from eosframework.kafka.inspect.probes import (
    Clock,
    controller_clock,
    metadata_levels,
    missing_operation,
)
from eosframework.kafka.inspect.wire import Wire
from eosframework.operations.doctor.findings import Seen, Unseen, not_asked
from eosframework.topology.graph.graph import Graph
from eosframework.txnid import TransactionalId, prefix

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Coordinated:
    """What was seen; the names are those of the snapshot."""

    levels: Seen[Mapping[int, int]]
    clock: Seen[Clock]
    open_transactions: Seen[tuple[OpenTransaction, ...]]
    open_offsets: Seen[tuple[OpenTransaction, ...]]
    ids: Seen[tuple[TransactionListing, ...]]
    lacking: Mapping[str, Seen[str]]


def ask_coordinators(
    settings: KafkaSettings,
    graph: Graph,
    topics: Sequence[str],
    leases: Mapping[str, TransactionalId] | None,
    *,
    has_transactions: bool,
) -> Coordinated:
    """Ask everything, one after the other; what fails is unseen.

    Args:
        settings: reach the cluster.
        graph: of the application.
        topics: in which transactions are looked for, existing or not.
        leases: the tasks that have leased ids, by id; None: ids are derived.
        has_transactions: there is a __transaction_state, or it may not be looked at.
    """
    application = graph.application
    if leases is None:
        ids = [str(TransactionalId.make(application, p.name, 0)) for p in graph.sub_topologies]
    else:
        ids = [id_ for id_, task in leases.items() if task.application == application]
    try:
        wire = Wire(settings, leases)
    except EosError as error:
        nothing: Seen[Any] = Seen(Unseen("transactions, clocks and versions", str(error)))
        return Coordinated(nothing, nothing, nothing, nothing, nothing, dict.fromkeys(ids, nothing))
    with wire:
        return Coordinated(
            levels=seen("versions of the brokers", lambda: metadata_levels(wire)),
            clock=seen("the controller's clock", lambda: controller_clock(wire)),
            open_transactions=seen("open transactions", lambda: _open(wire, topics)),
            open_offsets=seen(
                f"open transactions in {CONSUMER_OFFSETS}", lambda: _in_offsets(wire, application)
            ),
            ids=seen("transactional ids", lambda: _ids(wire, application))
            if has_transactions
            else Seen(()),
            lacking={
                name: seen(
                    f"permissions on {name}", lambda name=name: missing_operation(wire, name)
                )
                if has_transactions
                else Seen(not_asked("permissions on transactional ids", TRANSACTION_STATE))
                for name in ids
            },
        )


def seen(what: str, ask: Callable[[], T]) -> Seen[T]:
    """Return what `ask` answers, or that it was not seen, and why."""
    try:
        return Seen(ask())
    except REQUEST_FAILED as error:
        return Seen(Unseen(what, str(error)))


def _open(wire: Wire, topics: Sequence[str]) -> tuple[OpenTransaction, ...]:
    existing = sorted({partition.topic for partition in wire.leaders(topics)})
    return find_open(wire, existing).open_transactions if existing else ()


def _in_offsets(wire: Wire, group: str) -> tuple[OpenTransaction, ...]:
    """Return those that are open in the one partition that keeps the group's offsets."""
    partitions = len(wire.leaders([CONSUMER_OFFSETS]))
    if not partitions:
        return ()
    own = coordinator_partition(group, partitions)
    found = find_open(wire, [CONSUMER_OFFSETS]).open_transactions
    return tuple(entry for entry in found if entry.partition.partition == own)


def _ids(wire: Wire, application: str) -> tuple[TransactionListing, ...]:
    """Return those that begin as the application's do, and those that it has leased.

    Brokers leave out what is not allowed.
    """
    require_authority(wire, application)
    return tuple(
        listed
        for listed in list_transactions(wire)
        if listed.transactional_id.startswith(prefix(application))
        or (listed.lease is not None and listed.lease.application == application)
    )
