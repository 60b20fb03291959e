"""The names that an application, its parts and its topics may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from eosframework.errors import TopologyError

NAME_LENGTH = 200

ID_BYTES = 2**15 - 1
"""The length of a text in Kafka's requests has 16 bits, with a sign."""
"""Longest name, in characters: `{application}-control` has to fit a topic name (249)."""

NAME_CHARACTERS = "lower-case letters a-z, digits, '_' and '.'"

NAME = r"[a-z0-9_.]+"
"""Form of the names of sub-topologies, streams, stores, jobs and relays."""

APPLICATION = r"[a-z0-9][a-z0-9._-]*"
"""Form of the name of an application."""

SINK = r"sink(?:_driver)?\.[a-z0-9_.-]+"
"""Form of a sink of Spark in an id. It is no part of a topic's name, so it may have a `-`."""

INSTANCE = r"[A-Za-z0-9_.-]+"
"""Form of a worker's instance name (`group.instance.id`)."""

WORKER = "worker."
"""Prefix of an instance name in the id of a worker's producer."""

_RESERVED_PREFIXES = {
    "backfill.": "backfill jobs",
    "relay.": "outbox relays",
    "replay.": "replays of dead letters",
    "sink.": "sinks of Spark",
    "sink_driver.": "drivers of sinks of Spark",
    WORKER: "workers' producers",
}


class TopicKind(StrEnum):
    """The last part of an internal topic's name."""

    CONTROL = "control"
    OWNERSHIP = "ownership"
    CHANGELOG = "changelog"
    REPARTITION = "repartition"
    ROWS = "rows"
    RETRY = "retry"
    REPLAY = "replay"
    EFFECTS = "effects"


_ONE_EACH = (TopicKind.CONTROL, TopicKind.OWNERSHIP)
"""Kinds of which an application has one topic, so that its name has no part."""

_PARTS = "|".join(kind for kind in TopicKind if kind not in _ONE_EACH)
_TOPIC = re.compile(rf"({APPLICATION})-(?:({NAME})-({_PARTS})|({'|'.join(_ONE_EACH)}))")
_RETRY = re.compile(r"(.+)\.([1-9][0-9]*(?:ms|s|m|h|d))")


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The parts of an internal topic's name: `APPLICATION-PART-KIND`, or `APPLICATION-KIND`.

    Of these parts only the application's name may have a `-`, so a name parses back from its end,
    in one way.

    Args:
        application: name of the application that owns the topic.
        kind: the purpose of the topic.
        part: name of the store, stream or source; empty for the control and ownership topics.
        delay: for a retry topic, as in `10s`.
    """

    application: str
    kind: TopicKind
    part: str = ""
    delay: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the parts of a name; None: no internal topic has this name."""
        if (match := _TOPIC.fullmatch(text)) is None:
            return None
        application, part, kind, only = match.groups()
        if only is not None:
            return cls(application, TopicKind(only))
        if kind != TopicKind.RETRY:
            return cls(application, TopicKind(kind), part)
        if (delayed := _RETRY.fullmatch(part)) is None:
            return None
        return cls(application, TopicKind.RETRY, *delayed.groups())

    def __str__(self) -> str:
        part = f"{self.part}.{self.delay}" if self.kind is TopicKind.RETRY else self.part
        return "-".join(filter(None, (self.application, part, self.kind)))


def reserved_topic(topic: str) -> str | None:
    """Return the reason why no record of a user may be written to a topic; None: there is none.

    A foreign record in an internal topic would be taken for state or for input of its application,
    which need not be the one that writes.
    """
    if topic.startswith("__"):
        return f"topic {topic!r} is one that the brokers keep for themselves"
    if (found := InternalTopic.parse(topic)) is not None:
        return (
            f"topic {topic!r} has the name of an internal topic of application "
            f"{found.application!r} ({found.kind})"
        )
    return None


def control_topic(application: str) -> str:
    """Return the topic in which an application keeps what has to outlast its offsets."""
    return str(InternalTopic(application, TopicKind.CONTROL))


def ownership_topic(application: str) -> str:
    """Return the topic that lists the transactional ids that may write for each partition."""
    return str(InternalTopic(application, TopicKind.OWNERSHIP))


def rows_topic(application: str, stream: str) -> str:
    """Return the topic through which a stream's rows go to the database."""
    return str(InternalTopic(application, TopicKind.ROWS, stream))


def repartition_topic(application: str, name: str) -> str:
    """Return the topic through which records go to the task of their new key."""
    return str(InternalTopic(application, TopicKind.REPARTITION, name))


def retry_topic(application: str, source: str, delay: str) -> str:
    """Return the topic in which failed records of a source wait for their next attempt."""
    return str(InternalTopic(application, TopicKind.RETRY, source, delay))


def replay_topic(application: str, source: str) -> str:
    """Return the topic from which dead letters of a source are processed again."""
    return str(InternalTopic(application, TopicKind.REPLAY, source))


def changelog_topic(application: str, store: str) -> str:
    """Return the topic that has every change of a store."""
    return str(InternalTopic(application, TopicKind.CHANGELOG, store))


def effects_topic(application: str, sub_topology: str) -> str:
    """Return the journal of a sub-topology's effects outside of Kafka."""
    return str(InternalTopic(application, TopicKind.EFFECTS, sub_topology))


def tables_group(application: str) -> str:
    """Return the consumer group of the table writers; no application has a name with a `:`."""
    return f"{application}:tables"


def metric_name(topic: str) -> str:
    """Return the name of a topic in Kafka's metrics; two topics of one metric name collide."""
    return topic.replace(".", "_")


def refuse_bad_application(name: str) -> None:
    """Raise unless an application can have this name.

    Raises:
        TopologyError: names the characters that do not fit and those that do.
    """
    _refuse_length("application", name)
    if not re.fullmatch(APPLICATION, name):
        wrong = [c for c in dict.fromkeys(name) if not re.fullmatch(f"-|{NAME}", c)]
        raise TopologyError(
            f"application name {name!r} {_has(wrong) if wrong else f'begins with {name[0]!r}'}; it "
            f"becomes part of topic names and transactional ids, so use only {NAME_CHARACTERS}, "
            f"and '-', and begin with a letter or a digit"
        )


def refuse_bad_name(what: str, name: str) -> None:
    """Raise unless a part of an application can have this name.

    Args:
        what: the kind of thing named, for the message.
        name: the name.

    Raises:
        TopologyError: names the characters that do not fit and those that do.
    """
    _refuse_length(what, name)
    if not re.fullmatch(NAME, name):
        wrong = [c for c in dict.fromkeys(name) if not re.fullmatch(NAME, c)]
        raise TopologyError(
            f"{what} name {name!r} {_has(wrong)}; it becomes part of topic names and "
            f"transactional ids, so use only {NAME_CHARACTERS}"
        )


def refuse_bad_id(text: str) -> None:
    """Raise unless brokers take a text as a transactional id.

    Raises:
        TopologyError: it is empty, or longer than Kafka's texts.
    """
    if not 0 < len(text.encode(errors="replace")) <= ID_BYTES:
        raise TopologyError(
            f"transactional id {text!r:.80} has {len(text):,} characters; use 1 to {ID_BYTES:,}"
        )


def refuse_bad_instance(name: str) -> None:
    """Raise unless a worker's producer can be named after this instance.

    Raises:
        TopologyError: says which characters it may have.
    """
    if not re.fullmatch(INSTANCE, name):
        raise TopologyError(
            f"instance name {name!r:.200} becomes part of a transactional id, so use only letters "
            f"a-z and A-Z, digits, '_', '.' and '-'"
        )


def _refuse_length(what: str, name: str) -> None:
    if not name:
        raise TopologyError(f"{what} name is empty; use {NAME_CHARACTERS}")
    if len(name) > NAME_LENGTH:
        raise TopologyError(
            f"{what} name {name!r} has {len(name)} characters; use at most {NAME_LENGTH}"
        )


def _has(wrong: list[str]) -> str:
    return f"contains {', '.join(map(repr, wrong))}"


def refuse_reserved_name(sub_topology: str) -> None:
    """Raise if the ids of a user's sub-topology of this name would be the framework's own.

    Raises:
        TopologyError: the name starts with `backfill.`, `relay.`, `replay.`, `sink.`,
            `sink_driver.` or `worker.`.
    """
    for reserved, owner in _RESERVED_PREFIXES.items():
        if sub_topology.startswith(reserved):
            raise TopologyError(
                f"sub-topology name {sub_topology!r} starts with {reserved!r}, which is reserved "
                f"for {owner}; choose another name"
            )
