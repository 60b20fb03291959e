"""Partitions that share a producer: agreement among the members of a group.

The group's assignor assigns single partitions and knows nothing of producers. So the *first*
partition of those that share a producer decides for all of them: the member that is assigned it has
them all, and a member that is assigned another one ignores that (`Plan.owned`). In each generation
the first has one owner, so all have.

That holds if all members use the same number. A member with another number is refused when it
starts; and since two may start at the same moment, a member that shares producers checks again when
it takes partitions over: all members of its generation have joined by then, and each client id
states the member's number. The cutover of a backfill is a member, too, with the number of its own
settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from eosframework.application.control_topic import ControlState, sharing_key
from eosframework.errors import RunError, StartRefused
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.consumer.group import shared_by

_CUTOVER = "cutover."
"""Begin of the instance name of a cutover; the job's name follows."""

_SETTING = "worker.partitions_per_producer"


def refuse_other_sharing(partitions_per_producer: int, group: GroupDescription) -> None:
    """Refuse to start while members use another number: a partition would have two owners.

    Raises:
        StartRefused: names them, their number, and what to do.
    """
    for number, names in _others(partitions_per_producer, group).items():
        raise StartRefused(
            f"{_SETTING}={partitions_per_producer} in the settings of this process, and {number} "
            f"in those of {_shown(names)}, in the same group: a partition would have two owners. "
            f"{_next_step(names)}"
        )


def require_same_sharing(partitions_per_producer: int, group: GroupDescription) -> None:
    """Raise if a member of this worker's generation uses another number.

    Raises:
        RunError: this worker takes nothing over.
    """
    for number, names in _others(partitions_per_producer, group).items():
        raise RunError(
            f"{_SETTING}={partitions_per_producer} in the settings of this worker, and {number} in "
            f"those of {_shown(names)}, which joined the group at the same time: a partition would "
            f"have two owners, so nothing was processed here. {_next_step(names)}"
        )


def sharing_entries(partitions_per_producer: int, control: ControlState) -> dict[str, object]:
    """Return new entries of the control topic, so that takeovers fence ids of every number."""
    if partitions_per_producer == 1 and not control.sharing:
        return {}
    before = control.sharing or ((1,) if control.owners else ())
    numbers = {*before, partitions_per_producer}
    return {sharing_key(number): {} for number in sorted(numbers.difference(control.sharing))}


def _others(partitions_per_producer: int, group: GroupDescription) -> Mapping[int, list[str]]:
    """Return the instance names of members with other numbers, by number."""
    found: dict[int, list[str]] = {}
    for client_id, instance in zip_longest(group.client_ids, group.instances):
        if (number := shared_by(client_id)) != partitions_per_producer:
            found.setdefault(number, []).append(instance or client_id)
    return dict(sorted(found.items()))


def _shown(names: list[str], most: int = 3) -> str:
    more = len(names) - most
    shown = [
        f"the cutover of job {name.removeprefix(_CUTOVER)!r}"
        if name.startswith(_CUTOVER)
        else f"worker {name!r}"
        for name in sorted(names)[:most]
    ]
    return " and ".join([", ".join(shown), *([f"{more} more"] if more > 0 else [])])


def _next_step(names: list[str]) -> str:
    if all(name.startswith(_CUTOVER) for name in names):
        return (
            "Start this process again once the cutover has ended; a cutover that has the workers' "
            "settings (--config, --set) may run meanwhile"
        )
    return (
        f"Give all of them the same {_SETTING} (--config, --set); or, to change it, stop all "
        f"workers first (one that was killed counts until worker.session_timeout_seconds have "
        f"passed)"
    )
