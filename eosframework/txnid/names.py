"""The names that an application, its parts and its topics may have."""

from __future__ import annotations

import re

from eosframework.errors import TopologyError

NAME_LENGTH = 200
"""Longest name, in characters: `{application}.registry` has to fit a topic name (249)."""

NAME_CHARACTERS = "lower-case letters a-z, digits, '_' and '.'"

NAME = r"[a-z0-9_.]+"
"""Form of the names of sub-topologies, streams, stores, jobs and relays."""

APPLICATION = r"[a-z0-9][a-z0-9._-]*"
"""Form of the name of an application. Only it may have a `-`."""

REGISTRY = "registry"

_RESERVED_PREFIXES = {
    "backfill.": "backfill jobs",
    "relay.": "outbox relays",
    "replay.": "replays of dead letters",
}


def registry_topic(application: str) -> str:
    """Return the topic in which an application keeps what has to outlast its offsets."""
    return f"{application}.{REGISTRY}"


def rows_topic(application: str, stream: str) -> str:
    """Return the topic through which a stream's rows go to the database."""
    return f"{application}.{stream}.rows"


def repartition_topic(application: str, name: str) -> str:
    """Return the topic through which records go to the task of their new key."""
    return f"{application}.{name}.repartition"


def retry_topic(application: str, source: str, delay: str) -> str:
    """Return the topic in which failed records of a source wait for their next attempt."""
    return f"{application}.{source}.retry.{delay}"


def replay_topic(application: str, source: str) -> str:
    """Return the topic from which dead letters of a source are processed again."""
    return f"{application}.{source}.replay"


def changelog_topic(application: str, store: str) -> str:
    """Return the topic that has every change of a store."""
    return f"{application}.{store}.changelog"


def tables_group(application: str) -> str:
    """Return the consumer group whose members share out what goes to tables."""
    return f"{application}.tables"


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
        TopologyError: the name starts with `backfill.`, `relay.` or `replay.`.
    """
    for reserved, owner in _RESERVED_PREFIXES.items():
        if sub_topology.startswith(reserved):
            raise TopologyError(
                f"sub-topology name {sub_topology!r} starts with {reserved!r}, which is reserved "
                f"for {owner}; choose another name"
            )
