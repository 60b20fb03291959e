"""One dead letter: its original record, and its data for display."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson
from pydantic import BaseModel

from eosframework.errors import raised_by_functions
from eosframework.operations.moments import moment_text
from eosframework.processing.failures.dead_letter_forms import Form, digest, unpacked
from eosframework.processing.failures.failure_headers import (
    HEADER_ATTEMPTS,
    HEADER_DIGEST,
    HEADER_EXCEPTION,
    HEADER_FAILED,
    HEADER_FORM,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_SIZE,
    HEADER_STEP,
    HEADER_TOPIC,
    Headers,
    as_it_came,
)
from eosframework.processing.ports import Message, Output
from eosframework.processing.transaction.receipts import HEADER_RECEIPT, Receipt
from eosframework.records import EARLIEST_OUTPUT_MS, TopicPartition
from eosframework.serialization.serdes import BYTES, Serde
from eosframework.topology.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be processed, as stored in its dead-letter topic.

    Args:
        partition: of the dead-letter topic.
        offset: in the dead-letter topic.
        origin: source partition of the record.
        origin_offset: its offset there.
        step: the failed step; its name begins with that of its stream or source.
        error: in one line.
        failed_at: milliseconds since the epoch; None: written by a version without this header.
        attempts: number of failed attempts.
        replayed_from: place of the dead letter that was replayed as this record; None: not a
            replay.
        stored: value of the dead letter, in its form.
        timestamp: event time of the record, in milliseconds.
        headers: original headers of the record.
        form: bare: key and headers of the record are unknown here.
        size: bytes of the record's value, unless the form is whole.
        digest: of the record, likewise.
    """

    partition: TopicPartition
    offset: int
    origin: TopicPartition
    origin_offset: int
    step: str
    error: str
    failed_at: int | None
    attempts: int
    replayed_from: str | None
    key: bytes | None
    stored: bytes | None
    timestamp: int
    headers: Headers
    form: Form = Form.WHOLE
    size: int = 0
    digest: str = ""

    @property
    def place(self) -> str:
        """Place of the dead letter: `TOPIC[PARTITION]@OFFSET`."""
        return f"{self.partition}@{self.offset}"

    @property
    def input(self) -> str:
        """Place of the source record, in the same format."""
        return f"{self.origin}@{self.origin_offset}"

    @property
    def value(self) -> bytes | None:
        """The record's value; None: it has none, or the dead letter does not hold it."""
        if self.form is Form.GZIP:
            return unpacked(self.stored or b"", self.size)
        return self.stored

    @property
    def left_out(self) -> str | None:
        """Text about the parts of the record that the dead letter does not hold."""
        if self.form not in (Form.PLACE, Form.BARE):
            return None
        parts = "value" if self.form is Form.PLACE else "key, value and headers"
        return f"{parts}: the record was too large ({self.size:,} bytes of value)"

    @property
    def kind(self) -> str:
        """Type of the error."""
        return self.error.partition(":")[0]

    @classmethod
    def parse(cls, message: Message) -> DeadLetter | None:
        """Parse a dead letter; None: the record is not a dead letter of this framework."""
        pairs = message.headers() or []
        if not _is_ours(pairs):
            return None
        said = {name: (value or b"").decode(errors="replace") for name, value in pairs}
        try:
            origin = TopicPartition(said[HEADER_TOPIC], int(said[HEADER_PARTITION]))
            offset = int(said[HEADER_OFFSET])
            failed_at = int(said[HEADER_FAILED]) if HEADER_FAILED in said else None
            attempts = int(said.get(HEADER_ATTEMPTS, 1))
            # A record may have come with such headers; only those after the error are ours.
            names = [name for name, _ in pairs]
            form = Form.WHOLE
            if HEADER_FORM in names[_last(names, HEADER_EXCEPTION) :]:
                form = Form(said[HEADER_FORM])
            size = int(said.get(HEADER_SIZE, 0)) if form is not Form.WHOLE else 0
        except (KeyError, ValueError):
            return None
        return cls(
            partition=TopicPartition(message.topic(), message.partition()),
            offset=message.offset(),
            origin=origin,
            origin_offset=offset,
            step=said.get(HEADER_STEP, ""),
            error=said.get(HEADER_EXCEPTION, ""),
            failed_at=failed_at,
            attempts=attempts,
            replayed_from=said.get(HEADER_REPLAYED),
            key=message.key(),
            stored=message.value(),
            timestamp=max(message.timestamp()[1], EARLIEST_OUTPUT_MS),
            headers=as_it_came(pairs),
            form=form,
            size=size,
            digest=said.get(HEADER_DIGEST, "") if form is not Form.WHOLE else "",
        )

    def restored(self, record: Message | None) -> DeadLetter | None:
        """Return it with its whole record; None: that is neither here nor given.

        Args:
            record: found at the place of the record in its source; None: there is none.
        """
        if self.form is Form.WHOLE:
            return self
        if self.form is Form.GZIP and (value := self.value) is not None:
            return replace(self, stored=value, form=Form.WHOLE)
        if record is None:
            return None
        key, value, found = record.key(), record.value(), list(record.headers() or ())
        # In a topic of retries or replays it has headers that its steps did not see.
        for headers in (found, as_it_came(found)):
            if digest(key, value, headers) == self.digest:
                return replace(self, key=key, stored=value, headers=headers, form=Form.WHOLE)
        return None

    def again(self, application: str, topic: str, partitions: int) -> Output:
        """Return the original record as an output, to be processed again.

        It goes to the partition of the source record if the topic has that partition, and has a
        header with the place of the dead letter.

        Args:
            application: receipts of this application are removed.
            topic: target topic.
            partitions: number of partitions of that topic.
        """
        number = self.origin.partition if 0 <= self.origin.partition < partitions else -1
        kept = [(n, v) for n, v in self.headers if not _is_receipt_of(application, n, v)]
        headers = [*kept, (HEADER_REPLAYED, self.place.encode())]
        return (topic, self.value, self.key, number, None, None, self.timestamp, headers)


def _last(names: list[str], name: str) -> int:
    return len(names) - 1 - names[::-1].index(name) if name in names else 0


def _is_ours(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether this framework wrote a dead letter last.

    Kafka Streams writes the same headers (KIP-1034), also after those of a dead letter of ours that
    it read. It has no header for the step, which follows the others here.
    """
    names = [name for name, _ in headers if name in (HEADER_TOPIC, HEADER_STEP)]
    return bool(names) and names[-1] == HEADER_STEP


def _is_receipt_of(application: str, name: str, value: bytes | None) -> bool:
    if name != HEADER_RECEIPT:
        return False
    receipt = Receipt.parse(value)
    return receipt is not None and receipt.application == application


def shown(graph: Graph, letter: DeadLetter, *, was_replayed: bool) -> dict[str, Any]:
    """Return the data of a dead letter for display.

    Key and value are decoded with the serdes of the record's source topic. Where that fails, or no
    source reads this topic, they are text; bytes that are not UTF-8 become `{"hex": …}`.

    Args:
        graph: of the application.
        letter: the dead letter.
        was_replayed: the dead letter has a replay mark.
    """
    sources = {s.topic: s for part in graph.sub_topologies for s in part.sources}
    source = sources.get(letter.origin.topic)
    return {
        "letter": letter.place,
        "input": letter.input,
        "step": letter.step,
        "error": letter.error,
        "failed_at": None if letter.failed_at is None else moment_text(letter.failed_at),
        "attempts": letter.attempts,
        "replayed": was_replayed,
        "replayed_from": letter.replayed_from,
        "timestamp": moment_text(letter.timestamp),
        "key": _decoded(letter.key, source.key if source else BYTES),
        "value": _decoded(letter.value, source.value if source else BYTES),
        "left_out": letter.left_out,
        "headers": [{"name": name, "value": _plain(value)} for name, value in letter.headers],
    }


def _decoded(data: bytes | None, serde: Serde) -> Any:
    if data is None or serde.decode is None:
        return _plain(data)
    try:
        value = serde.decode(data)
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        orjson.dumps(plain)
    except raised_by_functions():  # the undecodable value may be the reason of the dead letter
        return _plain(data)
    return plain


def _plain(data: Any) -> Any:
    if not isinstance(data, bytes):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}
