"""Refused messages: found before they are produced, then set aside or reported.

A message is refused because of its topic's name, existence, permissions or limits, which are looked
up once for each topic. The topic is looked up again before a message is refused, so a topic that
was created or changed in the meantime accepts its messages. For other reasons Kafka refuses the
message when it is sent: see `Shard.reject`.

A message that is set aside is never sent: one statement moves its row out of the outbox, and a
message of the log is recorded before the position passes it. So a relay that is killed in between
neither loses nor duplicates it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from operator import attrgetter, itemgetter

import structlog

from eosframework.config import OutboxRefusal
from eosframework.postgres.outbox.relay_position import (
    ID_HEADER,
    Batch,
    Destination,
    Destinations,
    OutboxSource,
    Place,
    Refused,
    RelayCounts,
    just_before,
)
from eosframework.records import TOPIC_NAME
from eosframework.transactions.ports import Output
from eosframework.txnid import reserved_topic

SHOWN = 20
"""Number of messages of a batch that are logged by id; the others are counted."""

_TOPIC = itemgetter(0)
_PLACE = attrgetter("place")


class Refusals:
    """Applies `outbox.on_refused` to the messages of a relay.

    Args:
        policy: set messages aside, or fail.
        destinations: describes topics.
        counts: incremented for each message that is set aside.
    """

    def __init__(
        self,
        policy: OutboxRefusal,
        destinations: Destinations,
        counts: RelayCounts,
    ) -> None:
        self.policy = policy
        self._destinations = destinations
        self._counts = counts
        self._known: dict[str, Destination] = {}
        self._events = structlog.get_logger("eosframework.relay")

    def without_refused(self, batch: Batch, source: OutboxSource) -> Batch:
        """Return the batch without refused messages, which are set aside.

        With the policy `fail`, return the messages before the first refused one, which `cut_by`
        names.

        Raises:
            ClusterUnreachable: no broker described a topic; nothing was set aside.
        """
        if batch.unreadable:
            self._counts.unreadable += batch.unreadable
            self._events.warning("log_entries_unreadable", entries=batch.unreadable)
        found = self.found(batch.outputs, batch.places, batch.largest_bytes)
        refused = sorted((*batch.refused, *found), key=_PLACE)
        if not refused:
            return batch
        if self.policy is OutboxRefusal.FAIL:
            return self._before(batch, refused[0], source)
        self.set_aside(refused, source)
        left_out = {one.place for one in found}
        kept = [place not in left_out for place in batch.places]
        return replace(
            batch,
            outputs=[*compress(batch.outputs, kept)],
            places=[*compress(batch.places, kept)],
        )

    def found(
        self, outputs: Sequence[Output], places: Sequence[Place], largest_bytes: int
    ) -> list[Refused]:
        """Return the messages that their topics do not accept.

        Args:
            outputs: the messages.
            places: of the messages, one each.
            largest_bytes: upper bound for a message's size.
        """
        topics = set(map(_TOPIC, outputs))
        fresh = topics - self._known.keys()
        self._look_up(fresh)
        refused = self._refused(outputs, places, topics, largest_bytes)
        if stale := {one.topic for one in refused} - fresh:
            self._look_up(stale)
            refused = self._refused(outputs, places, topics, largest_bytes)
        for topic in fresh:
            if self._known[topic].refusal is not None:  # Publishers choose names: keep none.
                del self._known[topic]
        return refused

    def set_aside(self, refused: Sequence[Refused], source: OutboxSource) -> None:
        """Set messages aside, count and report them."""
        source.set_aside(refused)
        self._counts.refused += len(refused)
        for one in refused[:SHOWN]:
            self._events.warning(
                "message_set_aside",
                message=source.name_of(one),
                id=one.id,
                topic=one.topic,
                reason=one.reason,
            )
        if len(refused) > SHOWN:
            self._events.warning("messages_set_aside", more=len(refused) - SHOWN)

    def any_unwritable(self, topics: Collection[str]) -> bool:
        """Return whether one of these topics accepts no messages, after looking them up."""
        self._look_up(topics)
        return any(self._known[topic].refusal is not None for topic in topics)

    def forget(self) -> None:
        """Drop all descriptions of topics, so that they are looked up again."""
        self._known.clear()

    def _before(self, batch: Batch, first: Refused, source: OutboxSource) -> Batch:
        count = sum(place < first.place for place in batch.places)
        return replace(
            batch,
            outputs=batch.outputs[:count],
            places=batch.places[:count],
            position=just_before(batch.position, first.place),
            is_last=False,
            cut_by=refusal_of(first, source),
        )

    def _look_up(self, topics: Iterable[str]) -> None:
        to_ask: list[str] = []
        for topic in topics:
            if reason := self._invalid_name(topic):
                self._known[topic] = Destination(reason)
            else:
                to_ask.append(topic)
        if to_ask:
            self._known.update(self._destinations.describe(to_ask))

    def _invalid_name(self, topic: str) -> str | None:
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            return (
                f"topic {topic[:100]!r} is not the name of a Kafka topic, which has 1 to 249 of "
                f"the characters a-z, A-Z, 0-9, '.', '_' and '-'"
            )
        return reserved_topic(topic)

    def _refused(
        self,
        outputs: Sequence[Output],
        places: Sequence[Place],
        topics: Collection[str],
        largest_bytes: int,
    ) -> list[Refused]:
        """Return the refused messages; only topics with a limit are checked message by message."""
        strict = {topic: self._known[topic] for topic in topics}
        strict = {
            topic: found
            for topic, found in strict.items()
            if found.refusal is not None or found.needs_key or 0 < found.most_bytes < largest_bytes
        }
        if not strict:
            return []
        return [
            Refused(place, id_of(output), output[0], reason, output)
            for output, place in zip(outputs, places, strict=True)
            if output[0] in strict and (reason := _reason(output, strict[output[0]]))
        ]


def refusal_of(refused: Refused, source: OutboxSource) -> str:
    """Return the error message that ends a relay whose policy is `fail`."""
    return (
        f"{source.name_of(refused)} cannot be sent: {refused.reason}. No later message of its "
        f"shard is sent. Fix the cause, or let the relay set such messages aside with "
        f"outbox.on_refused=set_aside"
    )


def id_of(output: Output) -> str:
    """Return the id of a message, which is its last header."""
    headers = output[7]
    assert headers, f"a message of the outbox has the header {ID_HEADER}"
    return str(headers[-1][1])


def _reason(output: Output, destination: Destination) -> str | None:
    if destination.refusal is not None:
        return destination.refusal
    topic, value, key = output[:3]
    if destination.needs_key and key is None:
        return f"it has no key, and topic {topic} is compacted"
    headers = output[7] or ()
    size = len(value or b"") + len(key or b"")
    size += sum(len(name) + len(content or b"") for name, content in headers)
    if 0 < destination.most_bytes < size:
        return (
            f"it has {size} bytes, and topic {topic} takes {destination.most_bytes} "
            f"(max.message.bytes)"
        )
    return None
