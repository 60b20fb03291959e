"""Partitions that share a producer: what the members of a group have to agree on.

The group's assignor gives single partitions away, and knows nothing of producers. So the *first* of
the partitions that share one speaks for all of them: whoever the group gives it to has them all,
and whoever it gives another one to leaves that alone (`Plan.owned`). In each generation the first
has one owner, so all have.

That holds where all members count alike. A member with another number is refused when it starts;
and since two may start at the same moment, whoever shares looks again when it takes partitions
over: all members of its generation have joined by then, and each tells its number in its client id.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eosframework.application.control_topic import Registered, sharing_key
from eosframework.errors import RunError, StartRefused
from eosframework.kafka.consumer.group import shared_by


def refuse_other_sharing(partitions_per_producer: int, client_ids: Collection[str]) -> None:
    """Raise if workers run that count otherwise: a partition would have two owners.

    Raises:
        StartRefused: says what to do.
    """
    if others := _others(partitions_per_producer, client_ids):
        raise StartRefused(
            f"worker.partitions_per_producer={partitions_per_producer} here, and workers of this "
            f"application run with {others[0]}: a partition would have two owners. Use the same "
            f"number; or, to change it, stop all workers first (one that was killed counts until "
            f"worker.session_timeout_seconds have passed)"
        )


def require_same_sharing(partitions_per_producer: int, client_ids: Collection[str]) -> None:
    """Raise if a member of this worker's generation counts otherwise.

    Raises:
        RunError: this worker takes nothing over.
    """
    if others := _others(partitions_per_producer, client_ids):
        raise RunError(
            f"worker.partitions_per_producer={partitions_per_producer} here, and a worker that "
            f"started at the same time has {others[0]}; nothing was processed here. Give all "
            f"workers of the application the same number"
        )


def sharing_entries(partitions_per_producer: int, registered: Registered) -> dict[str, object]:
    """Return what the registry has to remember, so that takeovers fence ids of every number."""
    if partitions_per_producer == 1 and not registered.sharing:
        return {}
    before = registered.sharing or ((1,) if registered.owners else ())
    numbers = {*before, partitions_per_producer}
    return {sharing_key(number): {} for number in sorted(numbers.difference(registered.sharing))}


def _others(partitions_per_producer: int, client_ids: Collection[str]) -> Sequence[int]:
    return sorted({shared_by(client_id) for client_id in client_ids} - {partitions_per_producer})
