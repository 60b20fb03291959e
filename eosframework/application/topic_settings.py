"""Settings of topics on which the guarantee and event time rest.

One table: `apply` creates internal topics with its values, a start compares them, and the doctor
reports the differences. The topics of users (sources, outputs) are compared and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from eosframework.kafka.admin.metadata import TopicDescription


class TopicRole(StrEnum):
    """Roles of the application's topics."""

    SOURCE = "source"
    SINK = "sink"
    ROWS = "rows"
    REPARTITION = "repartition"
    RETRY = "retry"
    REPLAY = "replay"
    EFFECTS = "effects"
    CHANGELOG = "changelog"
    CONTROL = "control"
    OWNERSHIP = "ownership"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A setting that topics of some roles must have.

    Args:
        setting: its name in Kafka.
        roles: of the topics.
        value: required, and stated at creation.
        why: the consequence of another value.
        least: the least number that is accepted; None: only `value` is.
        refuses: no worker starts with another value; otherwise it warns.
        replicas: only topics with at least so many replicas.
    """

    setting: str
    roles: tuple[TopicRole, ...]
    value: str
    why: str
    least: int | None = None
    refuses: bool = True
    replicas: int = 1

    @property
    def expected(self) -> str:
        """The accepted values, for messages."""
        return self.value if self.least is None else f"at least {self.least}"

    def is_met(self, found: str) -> bool:
        """Return whether a value is accepted."""
        return found == self.value or (self.least is not None and int(found) >= self.least)


@dataclass(frozen=True, slots=True)
class Deviation:
    """A setting of a topic that has another value than required."""

    topic: str
    role: TopicRole
    requirement: Requirement
    found: str

    def __str__(self) -> str:
        row = self.requirement
        text = (
            f"{self.role} topic {self.topic!r} has {row.setting}={self.found}, expected "
            f"{row.expected}: {row.why}"
        )
        if self.role is TopicRole.SOURCE:
            return text
        return f"{text}. Set it: {alter_command(self.topic, row.setting, row.value)}"


def alter_command(topic: str, setting: str, value: str) -> str:
    """Return the command that changes a setting of a topic."""
    return f"kafka-configs --alter --topic {topic} --add-config {setting}={value}"


_ENTRIES = (TopicRole.CONTROL, TopicRole.OWNERSHIP)
_UNTIL_READ = (
    TopicRole.ROWS,
    TopicRole.REPARTITION,
    TopicRole.RETRY,
    TopicRole.REPLAY,
    TopicRole.EFFECTS,
)
_TIMED = (*_UNTIL_READ, TopicRole.CHANGELOG)
_INTERNAL = (*_TIMED, *_ENTRIES)

HOUR_MS = 3_600_000
TOMBSTONES_KEPT_MS = 7 * 86_400_000
READ_AGAIN_SECONDS = 600.0
"""A content of the ownership topic that is older is read from the beginning: brokers drop the
record of a removal after delete.retention.ms, and a process that was suspended for so long would
not see it. A reading whose beginning and end are so far apart counts for as long, so a removal is
kept for more than twice that time."""
UNLIMITED_MS = (1 << 63) - 1
"""The brokers' default of message.timestamp.before.max.ms."""

_REMOVALS = (
    "a process that reads for longer, or was suspended, misses removals and keeps what was removed"
)
_REFUSED = "the brokers reject records with such event times, and the worker ends"
_MARKERS = (
    "the brokers reject an entry, or the marker of its transaction, that arrives later, or from a "
    "machine with another clock"
)

REQUIREMENTS = (
    Requirement(
        "cleanup.policy",
        (*_ENTRIES, TopicRole.CHANGELOG),
        "compact",
        "the brokers would remove what is still needed, by its age",
    ),
    Requirement(
        "cleanup.policy",
        _UNTIL_READ,
        "delete",
        "the brokers would remove what is still needed: a record of which a later one has the key",
    ),
    Requirement(
        "retention.ms",
        _UNTIL_READ,
        "-1",
        "records that a stopped application or table writer has not read would be deleted",
    ),
    Requirement(
        "retention.bytes",
        _UNTIL_READ,
        "-1",
        "records that a stopped application or table writer has not read would be deleted",
    ),
    Requirement(
        "delete.retention.ms",
        (TopicRole.CHANGELOG, TopicRole.CONTROL),
        str(TOMBSTONES_KEPT_MS),
        _REMOVALS,
        least=HOUR_MS,
    ),
    Requirement(
        "delete.retention.ms",
        (TopicRole.OWNERSHIP,),
        str(round(3 * READ_AGAIN_SECONDS * 1000)),
        _REMOVALS,
        least=round(2 * READ_AGAIN_SECONDS * 1000) + 1,
    ),
    Requirement(
        "delete.retention.ms",
        (TopicRole.CHANGELOG,),
        str(TOMBSTONES_KEPT_MS),
        "a store that was not written for half of this time is rebuilt, so stores are rebuilt "
        "more often",
        least=TOMBSTONES_KEPT_MS,
        refuses=False,
    ),
    Requirement(
        "message.timestamp.type",
        _TIMED,
        "CreateTime",
        "the brokers replace event times by the time of writing, so records of half an hour would "
        "fall into one window of now",
    ),
    Requirement(
        "message.timestamp.type",
        (TopicRole.SINK,),
        "CreateTime",
        "the brokers replace event times by the time of writing, so readers of the output take "
        "old events for current ones",
        refuses=False,
    ),
    Requirement(
        "message.timestamp.type",
        (TopicRole.SOURCE,),
        "CreateTime",
        "windows and joins go by the time at which the brokers got a record, so late or repeated "
        "records give other results. If that is not meant, set it, or state timestamp: at the "
        "source",
        refuses=False,
    ),
    Requirement(
        "message.timestamp.before.max.ms", _TIMED, str(UNLIMITED_MS), _REFUSED, UNLIMITED_MS
    ),
    Requirement(
        "message.timestamp.after.max.ms", _TIMED, str(UNLIMITED_MS), _REFUSED, UNLIMITED_MS
    ),
    Requirement(
        "message.timestamp.before.max.ms", _ENTRIES, str(UNLIMITED_MS), _MARKERS, least=HOUR_MS
    ),
    Requirement(
        "message.timestamp.after.max.ms", _ENTRIES, str(UNLIMITED_MS), _MARKERS, least=HOUR_MS
    ),
    Requirement(
        "unclean.leader.election.enable",
        _INTERNAL,
        "false",
        "a replica that lacks acknowledged records may become the leader, and they are gone",
        refuses=False,
    ),
    Requirement(
        "min.insync.replicas",
        _INTERNAL,
        "2",
        "acknowledged records may be on one broker only, and are gone with it",
        least=2,
        refuses=False,
        replicas=3,
    ),
)
"""One row for each setting and value that a group of roles requires."""


def settings_at_creation(role: TopicRole, replicas: int | None = None) -> dict[str, str]:
    """Return the settings with which a topic is created.

    Args:
        role: of the topic.
        replicas: their number; None: the cluster's default, which is not known.
    """
    return {
        row.setting: row.value
        for row in REQUIREMENTS
        if role in row.roles and row.replicas <= (replicas or 1)
    }


def deviations(name: str, role: TopicRole, found: TopicDescription) -> Iterator[Deviation]:
    """Yield the settings of a topic that have other values than required.

    A setting that cannot be read is left out; the doctor reports the missing permission.
    """
    values = found.values or {}
    for row in REQUIREMENTS:
        value = values.get(row.setting)
        if role not in row.roles or value is None or found.replication_factor < row.replicas:
            continue
        if not row.is_met(value):
            yield Deviation(name, role, row, value)
