"""Partitions that share a producer: agreement among the members of a group.

The group's assignor assigns single partitions and knows nothing of producers. So the *first*
partition of those that share a producer decides for all of them: the member that is assigned it has
them all, and a member that is assigned another one ignores that (`Plan.owned`). In each generation
the first has one owner, so all have.

That holds if all members use the same number. A member with another number is refused when it
starts; and since two may start at the same moment, a member that shares producers checks again when
it takes partitions over: all members of its generation have joined by then, and each client id
states the member's number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eosframework.application.control_topic import ControlState, sharing_key
from eosframework.errors import RunError, StartRefused
from eosframework.kafka.consumer.group import shared_by


def refuse_other_sharing(partitions_per_producer: int, client_ids: Collection[str]) -> None:
    """Refuse to start while workers use another number: a partition would have two owners.

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
    """Raise if a member of this worker's generation uses another number.

    Raises:
        RunError: this worker takes nothing over.
    """
    if others := _others(partitions_per_producer, client_ids):
        raise RunError(
            f"worker.partitions_per_producer={partitions_per_producer} here, and a worker that "
            f"started at the same time has {others[0]}; nothing was processed here. Give all "
            f"workers of the application the same number"
        )


def sharing_entries(partitions_per_producer: int, control: ControlState) -> dict[str, object]:
    """Return new entries of the control topic, so that takeovers fence ids of every number."""
    if partitions_per_producer == 1 and not control.sharing:
        return {}
    before = control.sharing or ((1,) if control.owners else ())
    numbers = {*before, partitions_per_producer}
    return {sharing_key(number): {} for number in sorted(numbers.difference(control.sharing))}


def _others(partitions_per_producer: int, client_ids: Collection[str]) -> Sequence[int]:
    return sorted({shared_by(client_id) for client_id in client_ids} - {partitions_per_producer})
