"""The pieces of a join of two tables by a foreign key (ADR 41).

The join is cut into three streams, which are linked by repartition topics. Each is one step of the
join, in a sub-topology of its own: that of the left table, that of the right table, and one with
the left table's keys, whose records are the changes of the joined table.

    NAME.asks       from the left table:  →  APP-NAME.rows-repartition, by the left key
                                          →  APP-NAME.subscriptions-repartition, by the foreign key
    NAME.answers    from subscriptions and the right table  →  APP-NAME.answers-repartition
    NAME.joined     from rows and answers
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eosframework.topology.spec.join_spec import JoinSpec
from eosframework.topology.spec.topology_spec import Policy, SinkSpec, SourceSpec, StreamSpec
from eosframework.txnid import repartition_topic


class ForeignRole(StrEnum):
    """The step of a foreign-key join that a stream is."""

    ASK = "ask"
    ANSWER = "answer"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class ForeignKeys:
    """A foreign-key join.

    Args:
        stream: that declares it.
        place: of the step in it, for messages.
        declared: the declaration.
        name: start of the names of its stores and topics.
        key: serde of the left keys.
        foreign: serde of the right keys.
        rows: serdes of the left and the right rows.
        on_error: of the stream.
    """

    stream: str
    place: str
    declared: JoinSpec
    name: str
    key: str
    foreign: str
    rows: tuple[str, str]
    on_error: Policy | None

    @property
    def label(self) -> str:
        """The name of its steps in messages."""
        return f"{self.stream}.{self.place} join({self.declared.with_}, {self.declared.by})"


@dataclass(frozen=True, slots=True)
class ForeignPiece:
    """A stream that is one step of a foreign-key join.

    Args:
        follows: the topic that it writes with as many partitions as the reader's others; None:
            none.
    """

    role: ForeignRole
    join: ForeignKeys
    follows: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignCut:
    """The streams and sources of a foreign-key join, by name.

    Args:
        joined: the stream with the changes of the joined table.
        written: by repartition topic, the stream that writes it.
    """

    streams: dict[str, StreamSpec]
    sources: dict[str, SourceSpec]
    pieces: dict[str, ForeignPiece]
    written: dict[str, str]
    joined: str


ROWS, SUBSCRIPTIONS, ANSWERS = "rows", "subscriptions", "answers"
"""Last parts of the names of the repartition topics."""

STORES = ("subscribed", "subscribers", "joined")
"""Last parts of the names of the stores, in the order of the steps."""


def cut(application: str, join: ForeignKeys, left: StreamSpec, tail: str) -> ForeignCut:
    """Return the pieces of a join.

    Args:
        application: name of the application.
        join: the join.
        left: the stream up to the join.
        tail: suffix of the names of sources that read repartition topics.
    """
    names = {part: f"{join.name}.{part}" for part in (ROWS, SUBSCRIPTIONS, ANSWERS)}
    topics = {part: repartition_topic(application, name) for part, name in names.items()}
    keys = {ROWS: join.key, SUBSCRIPTIONS: join.foreign, ANSWERS: join.key}
    reads = {part: f"{name}{tail}" for part, name in names.items()}
    asks, answers, joined = (f"{join.name}.{part}" for part in ("asks", "answers", "joined"))

    def sinks(*parts: str) -> tuple[SinkSpec, ...]:
        return tuple(SinkSpec(topic=topics[p], key=keys[p], value="bytes") for p in parts)

    def reading(*parents: str) -> StreamSpec:
        return StreamSpec.model_validate({"from": parents, "on_error": join.on_error})

    return ForeignCut(
        streams={
            asks: left.model_copy(update={"to": sinks(ROWS, SUBSCRIPTIONS), "branch": {}}),
            answers: reading(reads[SUBSCRIPTIONS], join.declared.with_).model_copy(
                update={"to": sinks(ANSWERS)}
            ),
            joined: reading(reads[ROWS], reads[ANSWERS]),
        },
        sources={
            reads[part]: SourceSpec(
                topic=topics[part],
                key=keys[part],
                value="bytes",
                name=reads[part] if part == SUBSCRIPTIONS else f"{join.name}{tail}",
                on_error=join.on_error,
            )
            for part in names
        },
        pieces={
            asks: ForeignPiece(ForeignRole.ASK, join, topics[SUBSCRIPTIONS]),
            answers: ForeignPiece(ForeignRole.ANSWER, join, topics[ANSWERS]),
            joined: ForeignPiece(ForeignRole.JOIN, join),
        },
        written={topics[ROWS]: asks, topics[SUBSCRIPTIONS]: asks, topics[ANSWERS]: answers},
        joined=joined,
    )
