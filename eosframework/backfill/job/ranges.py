"""The input ranges of a job: `--from` and `--to` parsed, and resolved to offsets.

WHERE         beginning, end, or a time: 2024-01-01, 2024-01-01T06:00:00Z
TOPIC=WHERE   for one topic
TOPIC[N]=OFFSET
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eosframework.backfill.job.job_entry import OffsetRange
from eosframework.errors import ConfigurationError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.operations.moments import moment_ms
from eosframework.records import TopicPartition, whole_number

BEGINNING, END = "beginning", "end"

_ONE = re.compile(r"(?P<topic>[^\[\]=]+)(\[(?P<number>[0-9]{1,9})\])?=(?P<where>.+)")
_EXPECTED = (
    "expected beginning, end, a time such as 2024-01-31 or 2024-01-31T06:00:00Z, TOPIC= with one "
    "of these, or TOPIC[PARTITION]=OFFSET"
)


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range.

    Args:
        topic: None: every topic.
        partition: None: every one of the topic; else `where` is an offset.
        where: beginning, end, milliseconds since the epoch, or an offset.
    """

    topic: str | None
    partition: int | None
    where: str | int
    text: str


def parse_bound(text: str) -> Bound:
    """Parse one argument of `--from` or `--to`.

    Raises:
        ConfigurationError: the argument has another form.
    """
    match = _ONE.fullmatch(text)
    where = match["where"] if match else text
    topic = match["topic"] if match else None
    if match and match["number"] is not None:
        if (offset := whole_number(where)) is None:
            raise ConfigurationError(f"{text!r} is not a bound: {where!r} is not an offset")
        return Bound(topic, int(match["number"]), offset, text)
    if where in (BEGINNING, END):
        return Bound(topic, None, where, text)
    try:
        return Bound(topic, None, moment_ms(where), text)
    except ValueError:
        raise ConfigurationError(f"{text!r} is not a bound; {_EXPECTED}") from None


def offset_ranges(
    topics: Mapping[str, int],
    whole: frozenset[str],
    starts: Sequence[str],
    ends: Sequence[str],
    admin: ClusterAdmin,
) -> dict[str, tuple[OffsetRange, ...]]:
    """Return the range of every partition, with fixed ends.

    Args:
        topics: number of partitions by topic.
        whole: topics of tables, which are read from their beginning.
        starts: arguments of `--from`; later ones override earlier ones.
        ends: arguments of `--to`.
        admin: admin client of the cluster.

    Raises:
        ConfigurationError: the job does not read a topic, a range is reversed or not in the log, or
            records of it were deleted.
    """
    asked = [parse_bound(text) for text in starts], [parse_bound(text) for text in ends]
    for bound in (*asked[0], *asked[1]):
        _refuse_unknown(bound, topics)
    partitions = [TopicPartition(t, n) for t, count in sorted(topics.items()) for n in range(count)]
    log = admin.log_bounds(partitions)
    first = _resolved([Bound(None, None, BEGINNING, BEGINNING), *asked[0]], partitions, log, admin)
    last = _resolved([Bound(None, None, END, END), *asked[1]], partitions, log, admin)
    ranges: dict[str, list[OffsetRange]] = {topic: [] for topic in topics}
    for partition in partitions:
        begin, end = log[partition]
        (start, start_bound), (stop, stop_bound) = first[partition], last[partition]
        if partition.topic in whole:
            start = begin
        else:
            _refuse_gone(partition, start_bound, start, begin)
        for offset, bound in ((start, start_bound), (stop, stop_bound)):
            if not begin <= offset <= end:
                raise ConfigurationError(
                    f"{bound.text}: offset {offset} of {partition} is not in the log, which holds "
                    f"{begin} to {end}; give one of these"
                )
        if start > stop:
            raise ConfigurationError(
                f"the range of {partition} is reversed: --from {start_bound.text} is offset "
                f"{start}, and --to {stop_bound.text} is offset {stop}"
            )
        ranges[partition.topic].append(OffsetRange(first=start, end=stop))
    return {topic: tuple(found) for topic, found in ranges.items()}


def refuse_empty(ranges: Mapping[str, Sequence[OffsetRange]]) -> None:
    """Raise if there is nothing to process.

    Raises:
        ConfigurationError: no partition has a record in its range.
    """
    if all(one.first == one.end for found in ranges.values() for one in found):
        listed = ", ".join(
            f"{topic}[{number}] {one.first} to {one.end}"
            for topic, found in sorted(ranges.items())
            for number, one in enumerate(found)
        )
        raise ConfigurationError(
            f"the range holds no record: {listed or 'there is no topic'}; widen --from and --to"
        )


def _refuse_unknown(bound: Bound, topics: Mapping[str, int]) -> None:
    if bound.topic is None:
        return
    if bound.topic not in topics:
        raise ConfigurationError(
            f"{bound.text!r}: {bound.topic!r} is not a topic that the job reads from Kafka; it "
            f"reads {', '.join(sorted(topics)) or 'none'}"
        )
    if bound.partition is not None and bound.partition >= topics[bound.topic]:
        raise ConfigurationError(
            f"{bound.text!r}: topic {bound.topic!r} has {topics[bound.topic]} partitions, counted "
            f"from 0"
        )


def _refuse_gone(partition: TopicPartition, bound: Bound, start: int, begin: int) -> None:
    """Raise if retention deleted requested records.

    For a time, the loss cannot be determined: if the log has lost its beginning and all remaining
    records are newer than that time, records in between may have been deleted.
    """
    if bound.partition is None and isinstance(bound.where, int) and start == begin > 0:
        raise ConfigurationError(
            f"{partition}: the records from {bound.text} on are not all there any more: the log "
            f"begins at offset {begin}, later than that. To take the rest: --from "
            f"{partition.topic}={BEGINNING}"
        )
    if bound.partition is not None and start < begin:
        raise ConfigurationError(
            f"{partition}: offset {start} was deleted by retention; the log begins at offset "
            f"{begin}. To take the rest: --from  {partition.topic}[{partition.partition}]={begin}"
        )


def _resolved(
    bounds: Sequence[Bound],
    partitions: Sequence[TopicPartition],
    log: Mapping[TopicPartition, tuple[int, int]],
    admin: ClusterAdmin,
) -> dict[TopicPartition, tuple[int, Bound]]:
    found: dict[TopicPartition, tuple[int, Bound]] = {}
    for bound in bounds:
        meant = [p for p in partitions if bound.topic in (None, p.topic)]
        if bound.partition is not None:
            meant = [p for p in meant if p.partition == bound.partition]
            found.update({p: (int(bound.where), bound) for p in meant})
        elif isinstance(bound.where, str):
            side = 0 if bound.where == BEGINNING else 1
            found.update({p: (log[p][side], bound) for p in meant})
        else:
            offsets = admin.offsets_at(meant, bound.where)
            for partition in meant:
                offset = offsets[partition]
                end = log[partition][1]
                found[partition] = (end if offset is None else min(offset, end), bound)
    return found
