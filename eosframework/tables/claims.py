"""Start offsets of claimed partitions (P2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eosframework.errors import PositionLost
from eosframework.processing.ports import InputLog
from eosframework.records import TopicPartition
from eosframework.tables.table_ports import Claim

Starts = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]
"""Returns the start offsets of partitions that were never written."""


def offsets_of(claims: Sequence[Claim], log: InputLog, start: Starts) -> dict[TopicPartition, int]:
    """Return the offsets at which claimed partitions resume or start.

    Args:
        claims: the partitions' positions in the database.
        log: gives the bounds of the partitions' logs.
        start: gives the start offsets of partitions that were never written.

    Raises:
        PositionLost: the log no longer contains the next offset.
        TransactionError: the brokers did not answer.
    """
    partitions = [claim.partition for claim in claims]
    firsts, ends = log.beginning_offsets(partitions), log.end_offsets(partitions)
    new = [claim.partition for claim in claims if claim.next_offset is None]
    offsets = dict(start(new)) if new else {}
    for claim in claims:
        if claim.next_offset is None:
            continue
        first, end = firsts[claim.partition], ends[claim.partition]
        if not first <= claim.next_offset <= end:
            raise _position_lost(claim.partition, claim.next_offset, first, end)
        offsets[claim.partition] = claim.next_offset
    return offsets


def _position_lost(partition: TopicPartition, position: int, first: int, end: int) -> PositionLost:
    if position < first:
        place, consequence, there = f"begins at {first}", "the offsets between are gone", first
    else:
        place, there = f"ends at {end}", end
        consequence = "it was cut short, and what comes next may be other records"
    return PositionLost(
        f"{partition}: the database holds what comes before offset {position}, and the log "
        f"{place}: {consequence}. To go on from there, stop all workers and run: eosframework "
        f"positions set APP --tables '{partition}={there}'"
    )
