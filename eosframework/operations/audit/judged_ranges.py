"""The judged part of each input partition, divided between receipts and functions.

          first        start        since          end       position
├───────────┼────────────┼────────────┼─────────────┼───────────┤
 not in the    not judged   functions    receipts     not judged
 log any more

Each stretch of a partition (`audit_logs`) with a numbering is judged by receipts from where
this begins. Functions judge the rest of what was processed. Where they cannot, as for stateful
tasks, it is left out. Two stretches that overlap processed the same records: those belong to the
later numbering, and outputs with receipts of the earlier one count as copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from eosframework.engine.task.offsets import Progress
from eosframework.engine.task.receipts import Series
from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.consumer.range_reader import Ranges
from eosframework.operations.audit.audit_logs import (
    JobRows,
    Logs,
    Positions,
    ProcessedInput,
    Stretch,
)
from eosframework.operations.audit.audit_verdict import BEGINNING, END, Bound, Scope
from eosframework.operations.audit.receipt_books import Span
from eosframework.records import Position, TopicPartition

Interval = tuple[int, int]
"""Offsets from the first to before the second."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """Records that receipts judge, as part of a stretch with a numbering."""

    start: int
    end: int
    stretch: Stretch
    series: Series


@dataclass(frozen=True, slots=True)
class Portion:
    """The judged part of one input partition.

    Args:
        first: first offset in the log.
        begin: offset at which processing began, as far as that is known.
        start: offset of the first record in the scope.
        end: offset after the last one.
        numbered: records that receipts judge.
        plain: the other processed records.
        waiting: number of offsets of jobs in the scope that are not processed yet.
        is_left_out: functions cannot judge `plain` either.
    """

    first: int
    begin: int
    start: int
    end: int
    numbered: Sequence[Numbered]
    plain: Sequence[Interval]
    waiting: int = 0
    is_left_out: bool = False

    @property
    def derived(self) -> Sequence[Interval]:
        """Records that functions judge."""
        return () if self.is_left_out else self.plain

    @property
    def left_out(self) -> Sequence[Interval]:
        """Processed records that are not judged."""
        return self.plain if self.is_left_out else ()

    @property
    def judged(self) -> int:
        """Number of judged offsets."""
        return _size((one.start, one.end) for one in self.numbered) + _size(self.derived)

    @property
    def wanted(self) -> int:
        """Number of offsets in the scope that are processed, or that a job has to process."""
        return self.judged + _size(self.left_out) + self.waiting


@dataclass(frozen=True, slots=True)
class Portions:
    """The judged input, by partition.

    Args:
        receipts: receipts may judge.
        remembered: topics whose records functions cannot judge.
        firsts: the first offset in the log of every input partition.
        by_partition: the processed input partitions.
        processed: the stretches from which it was made.
    """

    scope: Scope
    receipts: bool
    remembered: frozenset[str]
    firsts: Positions
    by_partition: Mapping[TopicPartition, Portion]
    processed: ProcessedInput

    @property
    def rows(self) -> JobRows:
        """The rows of backfill jobs."""
        return JobRows(self.processed, self.scope.is_whole, self.receipts)

    @property
    def derived(self) -> list[Ranges]:
        """Ranges judged by functions, at most one of each partition at a time."""
        return _layers({p: portion.derived for p, portion in self.by_partition.items()})

    @property
    def left_out(self) -> dict[TopicPartition, Sequence[Interval]]:
        """Ranges of the scope that cannot be judged."""
        return {p: one.left_out for p, one in self.by_partition.items() if one.left_out}

    @property
    def is_whole(self) -> bool:
        """True if all processed records are judged."""
        return self.scope.is_whole and not self.left_out and not self.rows.left_out

    @property
    def judged(self) -> int:
        """Number of judged offsets and rows."""
        rows = sum(one.offset for one in self.rows.judged)
        return rows + sum(portion.judged for portion in self.by_partition.values())

    @property
    def wanted(self) -> int:
        """Number of offsets of the scope, and of rows."""
        portions = self.by_partition.values()
        left_out = sum(one.offset for one in self.rows.left_out)
        return self.judged + left_out + sum(one.wanted - one.judged for one in portions)

    @property
    def share(self) -> float:
        """Judged share of the scope, from 0 to 1; 1 for an empty scope."""
        return self.judged / self.wanted if self.wanted else 1.0

    @property
    def receipted(self) -> Ranges:
        """Ranges that contain all records judged by receipts."""
        return {
            p: (portion.numbered[0].start, max(one.end for one in portion.numbered))
            for p, portion in self.by_partition.items()
            if portion.numbered
        }

    @property
    def borders(self) -> dict[TopicPartition, list[int]]:
        """Offsets at which another stretch begins, whose outputs have an order of their own."""
        return {
            p: sorted({edge for one in found if one.job for edge in (one.first, one.end) if edge})
            for p, found in self.processed.stretches.items()
            if len(found) > 1
        }

    @property
    def trimmed(self) -> list[TopicPartition]:
        """Partitions whose log has lost records of the scope."""
        bounded = self.scope.start.moment is not None or self.scope.start.text == END
        offset, places = self.scope.start.offset or 0, self.scope.start.places
        return [
            p
            for p, portion in self.by_partition.items()
            if not bounded and max(places.get(p, offset), portion.begin) < portion.first
        ]

    def spans(self, now: ProcessedInput) -> list[Span]:
        """Return the spans judged by receipts; `now` has the positions at complete outputs.

        A partition with its first committed offset since then has an empty span: its receipts are
        recognized, and none is judged.
        """
        spans = [
            Span(
                p,
                one.start,
                one.end,
                position=one.stretch.offset,
                series=one.series,
                transaction=Progress.parse(one.stretch.position.metadata).transaction,
                position_now=now.offset_of(p, one.stretch),
                until=one.stretch.end,
            )
            for p, portion in self.by_partition.items()
            for one in portion.numbered
        ]
        for p, position in now.positions.items():
            if p not in self.by_partition and (series := self._numbering(position)) is not None:
                first, offset = self.firsts[p], position.offset or 0
                spans.append(Span(p, first, first, offset, series, 0, offset))
        return [*spans, *self.rows.spans(now)]

    def _numbering(self, position: Position) -> Series | None:
        return Series.parse(position.metadata) if self.receipts else None

    def since_then(self, now: ProcessedInput) -> list[Ranges]:
        """Return the ranges processed after the positions, and without receipts."""
        found: dict[TopicPartition, list[Interval]] = {}
        for p, stretches in now.stretches.items():
            if p.topic in self.remembered:
                continue
            before = {one.job: one for one in self.processed.stretches.get(p, ())}
            cut_over = [was for job, was in before.items() if job not in {s.job for s in stretches}]
            for one in stretches:
                was = before.get(one.job) or next(iter(cut_over), None)
                series, later = (
                    None if it is None else self._numbering(it.position) for it in (was, one)
                )
                if later is None or series is None or later.since != series.since:
                    start = (one.first or self.firsts[p]) if was is None else was.offset
                    found.setdefault(p, []).append((start, one.offset))
        return _layers(found)

    def not_judged(self, now: ProcessedInput) -> tuple[Ranges, Ranges]:
        """Return the processed ranges before, and after, the input judged by functions."""
        known = {p: one for p, one in self.by_partition.items() if p.topic not in self.remembered}
        before = {p: (max(one.first, one.begin), one.start) for p, one in known.items()}
        behind = {
            p: (portion.end, now.positions[p].offset or 0)
            for p, portion in known.items()
            if p in now.positions and self._numbering(now.positions[p]) is None
        }
        return before, behind

    def refuse_functions(self, topics: Collection[str]) -> None:
        """Raise if receipts do not cover all judged records of some topics.

        Raises:
            StartRefused: names the first range without receipts.
        """
        for p, portion in self.by_partition.items():
            for start, end in portion.derived:
                if p.topic in topics:
                    raise _without_receipts(p, start, end)

    def refuse_nothing(self) -> None:
        """Raise if the scope is not empty, and nothing of it can be judged.

        Raises:
            StartRefused: names the first range without receipts, or a job that has not begun.
        """
        if self.judged or not self.wanted:
            return
        if self.left_out:
            p, intervals = next(iter(self.left_out.items()))
            raise _without_receipts(p, *intervals[0])
        jobs = ", ".join(sorted({one.job for one in self.processed.jobs}))
        raise StartRefused(
            f"of what backfill job {jobs} processed, nothing can be judged: it has not begun, or "
            f"processed rows without receipts (worker.receipts=true)"
        )


def _without_receipts(p: TopicPartition, start: int, end: int) -> StartRefused:
    return StartRefused(
        f"{p}@{start} to @{end - 1} have no receipts in the committed numbering; audit "
        f"from {p}@{end} on, or let functions judge (--by auto) where tasks are "
        f"stateless. Workers and backfills write receipts with worker.receipts=true"
    )


def divide(
    scope: Scope,
    processed: ProcessedInput,
    logs: Logs,
    *,
    receipts: bool,
    remembered: frozenset[str] = frozenset(),
) -> Portions:
    """Return the judged part of each processed partition.

    Args:
        scope: requested by the user.
        processed: the stretches.
        logs: the application's topics.
        receipts: receipts may judge.
        remembered: topics whose records functions cannot judge; with `--from beginning`, these are
            judged by receipts alone.

    Raises:
        ConfigurationError: the scope ends before it begins, or names a partition that is not an
            input.
        StartRefused: the scope begins after every committed offset.
    """
    for bound in (scope.start, scope.end):
        _refuse_unknown(bound, logs)
    inputs = list(processed.stretches)
    all_firsts = logs.firsts(logs.inputs)
    firsts = {p: all_firsts[p] for p in inputs}
    positions = {p: position.offset or 0 for p, position in processed.positions.items()}
    lasts = {p: _last(found) for p, found in processed.stretches.items()}
    starts = _offsets(scope.start, firsts, positions, firsts, logs)
    ends = _offsets(scope.end, firsts, lasts, lasts, logs)
    for p in inputs:
        if starts[p] > ends[p] and (scope.end.text != END or scope.start.text == END):
            raise scope.backwards(f": of {p}, @{starts[p]} after @{ends[p]}")
    _refuse_unprocessed(scope, starts, positions)
    portions: dict[TopicPartition, Portion] = {}
    for p, found in processed.stretches.items():
        end = max(min(ends[p], lasts[p]), firsts[p])
        start = min(max(starts[p], firsts[p]), end)
        is_left_out = p.topic in remembered and scope.start.text == BEGINNING
        portions[p] = _portion(
            found, firsts[p], (start, end), receipts=receipts, is_left_out=is_left_out
        )
    return Portions(scope, receipts, remembered, all_firsts, portions, processed)


def _last(stretches: Sequence[Stretch]) -> int:
    """Return the offset at which the last stretch, or the range of the last job, ends."""
    return max(max(one.offset, one.end or 0) for one in stretches)


def _portion(
    stretches: Sequence[Stretch],
    first: int,
    scope: Interval,
    *,
    receipts: bool,
    is_left_out: bool,
) -> Portion:
    numbered = _numbered(stretches) if receipts else []
    by_receipts = [(one.start, one.end) for one in numbered]
    done = [(first if one.first is None else one.first, one.offset) for one in stretches]
    planned = [(one.offset, one.end) for one in stretches if one.end is not None]
    return Portion(
        first,
        min(0 if one.first is None else one.first for one in stretches),
        *scope,
        [_clipped(one, *scope) for one in numbered],
        _within(scope, _without(done, by_receipts)),
        _size(_within(scope, _without(planned, done))),
        is_left_out,
    )


def _numbered(stretches: Iterable[Stretch]) -> list[Numbered]:
    """Return what receipts judge, in order and without an overlap.

    An empty range stays: its receipts are recognized, and none is judged.
    """
    found = [
        Numbered(series.since, one.offset, one, series)
        for one in stretches
        if (series := one.series)
    ]
    kept: list[Numbered] = []
    for one in sorted(found, key=lambda one: (one.start, one.end)):
        if one.start == one.end or (kept and one.end <= kept[-1].end):
            continue  # empty, or all of its records belong to the one before
        if kept and one.start < kept[-1].end:
            before = kept.pop()
            if before.start < one.start:
                kept.append(replace(before, end=one.start))
        kept.append(one)
    kept += [one for one in found if one.start == one.end]
    return sorted(kept, key=lambda one: one.start)


def _clipped(one: Numbered, start: int, end: int) -> Numbered:
    begin = min(max(one.start, start), end)
    return replace(one, start=begin, end=max(min(one.end, end), begin))


def _without(wanted: Iterable[Interval], holes: Iterable[Interval]) -> list[Interval]:
    """Return the union of some intervals without that of others."""
    left: list[Interval] = []
    for start, end in sorted(wanted):
        begin = max(start, left[-1][1]) if left else start
        if begin < end:
            left.append((begin, end))
    for hole in holes:
        left = [
            part
            for start, end in left
            for part in ((start, min(end, hole[0])), (max(start, hole[1]), end))
            if part[0] < part[1]
        ]
    return left


def _within(scope: Interval, intervals: Iterable[Interval]) -> list[Interval]:
    found = [(max(start, scope[0]), min(end, scope[1])) for start, end in intervals]
    return [(start, end) for start, end in found if start < end]


def _size(intervals: Iterable[Interval]) -> int:
    return sum(max(end - start, 0) for start, end in intervals)


def _layers(found: Mapping[TopicPartition, Sequence[Interval]]) -> list[Ranges]:
    """Return intervals as ranges to read one after the other."""
    layers = zip_longest(*([(p, one) for one in intervals] for p, intervals in found.items()))
    return [dict(filter(None, layer)) for layer in layers]


def _offsets(
    bound: Bound, firsts: Positions, positions: Positions, default: Positions, logs: Logs
) -> Positions:
    """Return a bound's offset in each partition; `default` where the bound does not name it."""
    if bound.text == BEGINNING:
        return firsts
    if bound.text == END:
        return positions
    if bound.moment is not None:
        found = logs.admin.offsets_at(list(firsts), bound.moment)
        ends = logs.stable_ends(list(firsts))
        return {p: ends[p] if (offset := found[p]) is None else offset for p in firsts}
    if bound.offset is not None:
        return dict.fromkeys(firsts, bound.offset)
    return {p: bound.places.get(p, default[p]) for p in firsts}


def _refuse_unknown(bound: Bound, logs: Logs) -> None:
    for p in bound.places:
        if p not in logs.inputs:
            raise ConfigurationError(
                f"{p} is not an input partition; expected one of {', '.join(map(str, logs.inputs))}"
            )


def _refuse_unprocessed(scope: Scope, starts: Positions, positions: Positions) -> None:
    asked = scope.start.offset is not None or scope.start.places
    if asked and all(starts[p] >= positions[p] for p in positions):
        behind = ", ".join(f"{p}@{offset}" for p, offset in positions.items())
        raise StartRefused(
            f"nothing from {scope.start.text} on was processed: the committed positions are "
            f"{behind}. Give an earlier --from, or wait for the workers"
        )
