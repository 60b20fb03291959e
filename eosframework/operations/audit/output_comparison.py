"""The comparison of expected outputs with the records found.

1. match      each found record with an equal expected one, oldest first
2. lost       expected outputs without a match
   duplicated found records without a match
   torn       input records with some outputs matched and others not, and found records of input
              whose offset is not committed
   reordered  matched records that follow one of a later input record, by input partition and
              output partition

Equal records cannot be distinguished, so records expected more than once are counted but not
checked for order.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, cast

from eosframework.application.backfill_jobs import WRITER_HEADER
from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_source
from eosframework.engine.failures.dead_letter_forms import Form
from eosframework.engine.failures.dead_letter_forms import digest as record_digest
from eosframework.engine.failures.failure_handler import FailureHandler, Site, dead_letter
from eosframework.engine.failures.failure_headers import (
    HEADER_ATTEMPTS,
    HEADER_DIGEST,
    HEADER_EXCEPTION,
    HEADER_FAILED,
    HEADER_FIRST_FAILED,
    HEADER_FORM,
    HEADER_MESSAGE,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REPLAYED,
    HEADER_STACKTRACE,
    HEADER_STEP,
    HEADER_TOPIC,
    Headers,
    RetriedRecord,
    as_it_came,
)
from eosframework.engine.task.receipts import HEADER_RECEIPT
from eosframework.engine.task.transaction_receipts import HEADER_TRANSACTION
from eosframework.errors import RecordFailed, RunError
from eosframework.operations.audit.audit_verdict import DETAILS_OF_A_KIND, Detail, Details, Verdict
from eosframework.records import TopicPartition
from eosframework.topology.graph.graph import Graph
from eosframework.transactions.ports import Message, Output, is_row

_DIGEST_BYTES = 16

_ABSENT = -1
_NOT_COUNTED = (
    HEADER_EXCEPTION,
    HEADER_MESSAGE,
    HEADER_STACKTRACE,
    HEADER_FAILED,
    HEADER_RECEIPT,
    HEADER_TRANSACTION,
    WRITER_HEADER,
)
_NOT_OF_RECORD = (HEADER_RECEIPT, HEADER_TRANSACTION, WRITER_HEADER)
_LENGTHS = struct.Struct("<iiiq")
_HEADER_LENGTHS = struct.Struct("<ii")


def digest_of(
    topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Any
) -> bytes:
    """Return the digest of a record; equal for records with equal parts.

    Left out are a dead letter's error text, which may contain an object's address, the time of its
    failure, receipts, and the task of a backfill, which functions do not produce. The form of a
    dead letter, which depends on the size of its topic's records, makes no difference.

    Args:
        topic: the record's topic.
        key: encoded.
        value: encoded.
        timestamp: milliseconds since the epoch.
        headers: in the form of a producer or a consumer; None equals no headers.
    """
    if headers and _is_dead_letter(pairs := _pairs(headers)):
        key, value, headers = None, _record_of(key, value, pairs), _place_of(pairs)
    name = topic.encode()
    lengths = _LENGTHS.pack(
        len(name),
        _ABSENT if key is None else len(key),
        _ABSENT if value is None else len(value),
        timestamp,
    )
    content = lengths + name + (key or b"") + (value or b"")
    if headers:
        content += b"".join(_header_parts(headers))
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _header_parts(headers: Any) -> Iterable[bytes]:
    for name, value in _pairs(headers):
        if name in _NOT_COUNTED:
            continue
        encoded = name.encode()
        yield _HEADER_LENGTHS.pack(len(encoded), _ABSENT if value is None else len(value))
        yield encoded + (value or b"")


def _pairs(headers: Any) -> Headers:
    pairs: Iterable[tuple[str, Any]] = headers
    if isinstance(headers, Mapping):
        pairs = cast("Mapping[str, Any]", headers).items()
    return [(n, value.encode() if isinstance(value, str) else value) for n, value in pairs]


def _is_dead_letter(pairs: Headers) -> bool:
    return any(name == HEADER_STEP for name, _ in pairs)


def _record_of(key: bytes | None, value: bytes | None, pairs: Headers) -> bytes:
    """Return the digest of the record of a dead letter."""
    said = dict(pairs)
    if said.get(HEADER_FORM) in _REDUCED:
        return said.get(HEADER_DIGEST) or b""
    kept = [pair for pair in as_it_came(pairs) if pair[0] not in _NOT_OF_RECORD]
    return record_digest(key, value, kept).encode()


def _place_of(pairs: Headers) -> Headers:
    """Return the headers of a dead letter that say which record failed where."""
    said = dict(pairs)
    names = (
        HEADER_TOPIC,
        HEADER_PARTITION,
        HEADER_OFFSET,
        HEADER_STEP,
        HEADER_ATTEMPTS,
        HEADER_FIRST_FAILED,
        HEADER_REPLAYED,
    )
    return [(name, said[name]) for name in names if name in said]


_REDUCED = frozenset(form.encode() for form in Form if form is not Form.WHOLE)


_BUCKETS = 256
"""Digests are matched bucket by bucket, so that only one bucket at a time is a dictionary."""

_SIEVE_BITS = 8
"""Bits for each record, at least; at most twice as many."""


class Ledger:
    """Records in insertion order: a digest and a place in a log for each.

    An expected output has the place of its input record; a found record has its own place.
    """

    def __init__(self) -> None:
        self._numbers: dict[TopicPartition, int] = {}
        self._partitions: list[TopicPartition] = []
        self._digests = bytearray()
        self._buckets = [array("I") for _ in range(_BUCKETS)]
        self._partition_of = array("I")
        self._offset_of = array("q")

    def __len__(self) -> int:
        return len(self._offset_of)

    def add(self, partition: TopicPartition, offset: int, digest: bytes) -> None:
        """Append a record."""
        number = self._numbers.get(partition)
        if number is None:
            number = self._numbers[partition] = len(self._partitions)
            self._partitions.append(partition)
        self._buckets[digest[0]].append(len(self._offset_of))
        self._digests += digest
        self._partition_of.append(number)
        self._offset_of.append(offset)

    def extend(self, other: Ledger) -> None:
        """Append the records of another ledger."""
        for index in range(len(other)):
            number, offset = other.place(index)
            self.add(other.partition(number), offset, other.digest(index))

    def sieve(self) -> Callable[[bytes], bool]:
        """Return a Bloom filter over the digests: always true for contained digests.

        It is also true for about one in eight other digests; it takes at most two bytes a record.
        """
        size = 1 << max(len(self) * _SIEVE_BITS, 1 << 16).bit_length()
        bits = bytearray(size >> 3)
        for start in range(0, len(self._digests), _DIGEST_BYTES):
            place = int.from_bytes(self._digests[start + 1 : start + 9]) & (size - 1)
            bits[place >> 3] |= 1 << (place & 7)

        def may_hold(digest: bytes) -> bool:
            place = int.from_bytes(digest[1:9]) & (size - 1)
            return bool(bits[place >> 3] & (1 << (place & 7)))

        return may_hold

    def digests(self) -> Iterator[bytes]:
        """Yield the digests in order."""
        return (self.digest(index) for index in range(len(self)))

    def bucket(self, number: int) -> Sequence[int]:
        """Return the indexes of the records in a bucket, ascending."""
        return self._buckets[number]

    def digest(self, index: int) -> bytes:
        """Return the digest of a record."""
        start = index * _DIGEST_BYTES
        return bytes(self._digests[start : start + _DIGEST_BYTES])

    def place(self, index: int) -> tuple[int, int]:
        """Return the partition's number and the offset of a record."""
        return self._partition_of[index], self._offset_of[index]

    def partition(self, number: int) -> TopicPartition:
        """Return the partition of this number."""
        return self._partitions[number]

    def name(self, index: int) -> str:
        """Return a record's place as messages name it: `flights.raw[1]@532`."""
        return f"{self._partitions[self._partition_of[index]]}@{self._offset_of[index]}"


OUTPUT_STEP = "output"
"""Step named in a dead letter if the broker refused the output of the functions."""

UNKNOWN_TIME = -1
"""Timestamp placeholder for records of topics whose broker sets the timestamps."""


class Derivation:
    """Derives outputs with the worker's functions, compiled the same way.

    Args:
        graph: the application.
        has_broker_time: returns whether the broker sets the timestamps of a topic.
        is_missing: returns whether a topic chosen by a function does not exist; None: unknown.
    """

    def __init__(
        self,
        graph: Graph,
        has_broker_time: Callable[[str], bool],
        is_missing: Callable[[str], bool] | None = None,
    ) -> None:
        sources = graph.sources
        context = CompileContext(
            is_missing=is_missing,
            own_topics=graph.repartition_topics,
        )
        self._compiled = {source.topic: compile_source(source, context) for source in sources}
        self._has_broker_time = has_broker_time
        self._failures = FailureHandler()
        self.refused: dict[tuple[str, int, int], Site] = {}
        """Error sites by place of input records that dead letters report as failed although the
        functions do not fail: records refused by the broker, and replayed ones, possibly with
        other functions."""
        self.left_out: set[str] = set()
        """Topics whose records are deleted after use, so no record of them is required."""
        self.topics: set[str] = set()
        """Topics of the outputs derived so far."""

    def derive(self, partition: TopicPartition, messages: Sequence[Message], into: Ledger) -> None:
        """Add the outputs of input records of one partition, each at its input's place.

        Raises:
            RunError: a processed record fails now, and its policy is to fail.
        """
        for message in messages:
            self._add(partition, message.offset(), self._outputs_of(partition, message), into)

    def rows(self, partition: TopicPartition, messages: Sequence[Message]) -> list[Output]:
        """Return the rows for tables that are decided with the outputs, in input order.

        Raises:
            RunError: as `derive`.
        """
        outputs = (self._outputs_of(partition, message) for message in messages)
        return [output for some in outputs for output in some if is_row(output)]

    def _outputs_of(self, partition: TopicPartition, message: Message) -> list[Output]:
        """Return what a record gives, rows for tables included."""
        compiled, offset = self._compiled[partition.topic], message.offset()
        outputs: list[Output] = []
        if self.refused and (*partition, offset) in self.refused:
            site = self.refused[partition.topic, partition.partition, offset]
            return [dead_letter(site, message, Exception())]
        record = message if compiled.source.retry_of is None else RetriedRecord(message)
        try:
            compiled.run((record,), outputs, 0, self._failures)
        except RecordFailed as error:
            raise RunError(
                f"record {partition}@{offset} was processed, but fails now: "
                f"{error.__cause__!r}. Audit with the functions that the workers ran"
            ) from error
        return outputs

    def derive_while_it_works(
        self, batches: Iterable[tuple[TopicPartition, list[Message]]]
    ) -> Iterator[Ledger]:
        """Yield the outputs of each batch; a failing record ends its partition."""
        stopped: set[TopicPartition] = set()
        for partition, messages in batches:
            if partition in stopped:
                continue
            derived = Ledger()
            try:
                self.derive(partition, messages, derived)
            except RunError:
                stopped.add(partition)
            yield derived

    def _add(
        self, partition: TopicPartition, offset: int, outputs: Iterable[Output], into: Ledger
    ) -> None:
        for topic, value, key, _, _, row_of, timestamp, headers in outputs:
            if topic in self.left_out or row_of is not None:
                continue
            self.topics.add(topic)
            if self._has_broker_time(topic):
                timestamp = UNKNOWN_TIME
            into.add(partition, offset, digest_of(topic, key, value, timestamp, headers))


def compare(
    expected: Ledger,
    found: Ledger,
    matching: Matching | None = None,
    *,
    input_records: int,
    required: int | None = None,
    ahead: Ledger | None = None,
    input_trimmed: bool = False,
    only_a_part: bool = False,
    borders: Mapping[TopicPartition, Sequence[int]] | None = None,
    notes: tuple[str, ...] = (),
) -> Verdict:
    """Return the verdict (step 2).

    Args:
        expected: the outputs of the input, in input order.
        found: the records of the output topics, each partition in order.
        matching: result of `match`. None: match now.
        input_records: number of input records of `expected`.
        required: leading part of `expected` that must exist; the rest belongs to records processed
            while the audit ran. None: all.
        ahead: outputs of input records from the committed offsets on.
        input_trimmed: the input lost its first records, so a found record without an equal expected
            one proves nothing.
        only_a_part: `expected` covers a part of the input; such a record belongs to another part.
        borders: by input partition, ascending offsets at which another stretch of input begins; the
            order between outputs of different stretches is free. None: there is one stretch.
        notes: remarks for readers of the counts.
    """
    matching = matching or match(expected, found)
    required = len(expected) if required is None else required
    details = Details()
    lost, torn = _missing(expected, matching, required, details)
    uncommitted = _uncommitted(found, matching, ahead, details)
    unexplained = [index for index in matching.unexplained if index not in uncommitted]
    others = 0 if only_a_part else len(unexplained)
    unexpected = 0 if input_trimmed else others
    _report_copies(expected, found, matching, details)
    for index in unexplained[: DETAILS_OF_A_KIND if unexpected else 0]:
        name = found.name(index)
        details.add(Detail("duplicated", f"{name} comes from no input record", output=name))
    return Verdict(
        input=input_records,
        output=matching.matched + len(matching.copies) if only_a_part else len(found),
        lost=lost,
        duplicated=len(matching.copies) + unexpected,
        reordered=_reordered(expected, found, matching, details, borders or {}),
        torn=torn + len(set(uncommitted.values())),
        unexpected=unexpected,
        untraced=others if input_trimmed else 0,
        details=details.sorted(),
        notes=notes,
    )


def _missing(
    expected: Ledger, matching: Matching, required: int, details: Details
) -> tuple[int, int]:
    """Count lost outputs, and input records with only some outputs lost."""
    lost = torn = 0
    runs: dict[int, _Run] = {}
    for start, stop in _inputs(expected, required):
        partition = expected.place(start)[0]
        missing = sum(matching.found_as[index] == _NONE for index in range(start, stop))
        lost += missing
        if missing == stop - start:
            runs.setdefault(partition, _Run(start)).add(start, missing)
            continue
        if partition in runs:
            details.add(runs.pop(partition).lost(expected))
        if missing:
            torn += 1
            _report_torn(expected.name(start), missing, stop - start, details)
    for run in runs.values():
        details.add(run.lost(expected))
    return lost, torn


def _inputs(expected: Ledger, required: int) -> Iterator[tuple[int, int]]:
    """Yield the outputs of each input record, as the first index and the one after the last."""
    start = 0
    for index in range(1, required):
        if expected.place(index) != expected.place(start):
            yield start, index
            start = index
    if required:
        yield start, required


@dataclass(slots=True)
class _Run:
    """Consecutive input records that lost all outputs, as the indexes of their first outputs."""

    first: int
    last: int = 0
    inputs: int = 0
    outputs: int = 0

    def add(self, index: int, outputs: int) -> None:
        self.last = index
        self.inputs += 1
        self.outputs += outputs

    def lost(self, expected: Ledger) -> Detail:
        name = expected.name(self.first)
        if self.inputs == 1:
            what = (
                f"all {self.outputs:,} outputs of {name} are"
                if self.outputs > 1
                else (f"the output of {name} is")
            )
            return Detail("lost", f"{what} not there", name)
        through = expected.name(self.last)
        text = (
            f"all {self.outputs:,} outputs of {self.inputs:,} input records in a row, {name} to "
            f"{through}, are not there"
        )
        return Detail("lost", text, name, through)


def _report_torn(name: str, missing: int, count: int, details: Details) -> None:
    verb = "is" if missing == 1 else "are"
    details.add(Detail("lost", f"{missing} of {count} outputs of {name} {verb} not there", name))
    details.add(Detail("torn", f"{name}: only a part of its outputs is there", name))


def _report_copies(expected: Ledger, found: Ledger, matching: Matching, details: Details) -> None:
    copies = sorted(matching.copies.items(), key=lambda item: (item[1], item[0]))
    for run in _runs_of_copies(copies, expected):
        index, original = run[0]
        name, place = expected.name(original), found.name(index)
        if expected.place(original) == expected.place(run[-1][1]):
            for index, original in run:
                first = found.name(matching.found_as[original])
                text = f"{found.name(index)} repeats {first}, the output of {name}"
                details.add(Detail("duplicated", text, name, output=found.name(index)))
            continue
        through = expected.name(run[-1][1])
        text = f"all {len(run):,} outputs of {name} to {through} are there again, from {place} on"
        details.add(Detail("duplicated", text, name, through, place))


def _runs_of_copies(
    copies: list[tuple[int, int]], expected: Ledger
) -> Iterator[list[tuple[int, int]]]:
    """Yield runs of copies whose originals follow each other in one input partition."""
    run: list[tuple[int, int]] = []
    for copy in copies:
        if run and (
            copy[1] != run[-1][1] + 1 or expected.place(copy[1])[0] != expected.place(run[-1][1])[0]
        ):
            yield run
            run = []
        run.append(copy)
    if run:
        yield run


def _uncommitted(
    found: Ledger, matching: Matching, ahead: Ledger | None, details: Details
) -> Mapping[int, tuple[int, int]]:
    """Return the found records of input from the committed offsets on."""
    if ahead is None or not matching.unexplained:
        return {}
    wanted = {found.digest(index): index for index in reversed(matching.unexplained)}
    uncommitted: dict[int, tuple[int, int]] = {}
    for index in range(len(ahead)):
        place = wanted.pop(ahead.digest(index), None)
        if place is not None:
            uncommitted[place] = ahead.place(index)
            name, output = ahead.name(index), found.name(place)
            text = f"{output} is visible, but the offset after its input {name} is not committed"
            details.add(Detail("torn", text, name, output=output))
    return uncommitted


def _reordered(
    expected: Ledger,
    found: Ledger,
    matching: Matching,
    details: Details,
    borders: Mapping[TopicPartition, Sequence[int]],
) -> int:
    latest: dict[tuple[int, int, int], int] = {}
    reordered = 0
    for index, origin in enumerate(matching.origin):
        if origin == _NONE or matching.alike[origin]:
            continue
        input_partition, offset = expected.place(origin)
        stretch = bisect_right(borders.get(expected.partition(input_partition), ()), offset)
        route = (input_partition, stretch, found.place(index)[0])
        before = latest.get(route, _NONE)
        if offset >= before:
            latest[route] = offset
            continue
        reordered += 1
        name, output = expected.name(origin), found.name(index)
        text = (
            f"{output}, the output of {name}, comes after an output of "
            f"{expected.partition(input_partition)}@{before}"
        )
        details.add(Detail("reordered", text, name, output=output))
    return reordered


_NONE = -1


@dataclass(slots=True)
class Matching:
    """Pairs of found and expected records.

    Args:
        origin: by found record, the index of the expected one.
        found_as: by expected record, the index of the found one.
        alike: by expected record, whether another expected one equals it.
        copies: found records equal to an expected one that already has a match, with its index.
        unexplained: found records equal to no expected one.
    """

    origin: array[int]
    found_as: array[int]
    alike: bytearray
    copies: dict[int, int] = field(default_factory=dict[int, int])
    unexplained: list[int] = field(default_factory=list[int])

    @property
    def matched(self) -> int:
        """Number of found records with a match."""
        return len(self.origin) - self.origin.count(_NONE)

    def explain(self, found: Ledger, digests: Iterable[bytes]) -> None:
        """Remove copies that equal outputs of other input records, one for each output."""
        wanted: dict[bytes, list[int]] = {}
        for index in self.copies:
            wanted.setdefault(found.digest(index), []).append(index)
        for digest, count in Counter(d for d in digests if d in wanted).items():
            for index in wanted[digest][:count]:
                self.alike[self.copies.pop(index)] = 1


def match(expected: Ledger, found: Ledger) -> Matching:
    """Match the found records with the expected ones."""
    matching = Matching(
        origin=array("q", [_NONE]) * len(found),
        found_as=array("q", [_NONE]) * len(expected),
        alike=bytearray(len(expected)),
    )
    for bucket in range(_BUCKETS):
        _match_bucket(bucket, expected, found, matching)
    matching.unexplained.sort()
    return matching


def _match_bucket(bucket: int, expected: Ledger, found: Ledger, matching: Matching) -> None:
    waiting: dict[bytes, list[int]] = {}
    for index in expected.bucket(bucket):
        waiting.setdefault(expected.digest(index), []).append(index)
    for alike in waiting.values():
        if len(alike) > 1:
            for index in alike:
                matching.alike[index] = 1
    taken: dict[bytes, int] = {}
    for index in found.bucket(bucket):
        digest = found.digest(index)
        alike = waiting.get(digest)
        if alike is None:
            matching.unexplained.append(index)
            continue
        count = taken.get(digest, 0)
        if count == len(alike):
            matching.copies[index] = alike[-1]
            continue
        taken[digest] = count + 1
        matching.origin[index] = alike[count]
        matching.found_as[alike[count]] = index
