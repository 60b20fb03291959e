"""The judged part of each input partition, divided between receipts and functions.

          first        start        since          end       position
├───────────┼────────────┼────────────┼─────────────┼───────────┤
 not in the    not judged   functions    receipts     not judged
 log any more

Where functions cannot judge, as for stateful tasks, the range begins where receipts begin: the
input from `wanted` to `start` was processed without receipts and cannot be judged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.consumer.range_reader import Ranges
from eosframework.operations.audit.audit_logs import Logs, Positions
from eosframework.operations.audit.audit_scope import BEGINNING, END, Bound, Scope
from eosframework.operations.audit.receipt_books import Span
from eosframework.processing.transaction.offsets import Progress
from eosframework.processing.transaction.receipts import Series
from eosframework.records import Position, TopicPartition


@dataclass(frozen=True, slots=True)
class Portion:
    """The judged part of one input partition.

    Args:
        first: first offset in the log.
        wanted: offset of the first record in the scope.
        start: offset of the first judged record.
        end: offset after the last judged record; at most that of `committed`.
        series: the numbering of outputs that receipts judge by; None: functions judge.
    """

    first: int
    wanted: int
    start: int
    end: int
    committed: Position
    series: Series | None

    @property
    def since(self) -> int:
        """First offset judged by receipts; `end` if functions judge all of it."""
        if self.series is None:
            return self.end
        return min(max(self.series.since, self.start), self.end)


@dataclass(frozen=True, slots=True)
class Portions:
    """The judged input, by partition.

    Args:
        receipts: receipts may judge.
        remembered: topics whose records functions cannot judge.
        firsts: the first offset in the log of every input partition.
        by_partition: the input partitions with a committed offset.
    """

    scope: Scope
    receipts: bool
    remembered: frozenset[str]
    firsts: Positions
    by_partition: Mapping[TopicPartition, Portion]

    @property
    def derived(self) -> Ranges:
        """Ranges judged by functions."""
        return {p: (portion.start, portion.since) for p, portion in self.by_partition.items()}

    @property
    def left_out(self) -> Ranges:
        """Ranges of the scope that cannot be judged."""
        return {
            p: (portion.wanted, portion.start)
            for p, portion in self.by_partition.items()
            if portion.wanted < portion.start
        }

    @property
    def is_whole(self) -> bool:
        """True if all processed records are judged."""
        return self.scope.is_whole and not self.left_out

    @property
    def share(self) -> float:
        """Judged share of the scope by offsets, from 0 to 1; 1 for an empty scope."""
        portions = self.by_partition.values()
        wanted = sum(portion.end - portion.wanted for portion in portions)
        return sum(portion.end - portion.start for portion in portions) / wanted if wanted else 1.0

    @property
    def receipted(self) -> Ranges:
        """Ranges judged by receipts."""
        return {
            p: (portion.since, portion.end)
            for p, portion in self.by_partition.items()
            if portion.series is not None
        }

    @property
    def trimmed(self) -> list[TopicPartition]:
        """Partitions whose log has lost records of the scope."""
        bounded = self.scope.start.moment is not None or self.scope.start.text == END
        offset, places = self.scope.start.offset or 0, self.scope.start.places
        return [
            p
            for p, portion in self.by_partition.items()
            if not bounded and places.get(p, offset) < portion.first
        ]

    def spans(self, now: Mapping[TopicPartition, Position]) -> list[Span]:
        """Return the spans judged by receipts; `now` has the committed offsets at complete outputs.

        A partition with its first committed offset since then has an empty span: its receipts are
        recognized, and none is judged.
        """
        spans = [
            Span(
                p,
                portion.since,
                portion.end,
                position=portion.committed.offset or 0,
                series=portion.series,
                transaction=Progress.parse(portion.committed.metadata).transaction,
                position_now=now.get(p, portion.committed).offset or 0,
            )
            for p, portion in self.by_partition.items()
            if portion.series is not None
        ]
        for p, position in now.items():
            if p not in self.by_partition and (series := self._numbering(position)) is not None:
                first, offset = self.firsts[p], position.offset or 0
                spans.append(Span(p, first, first, offset, series, 0, offset))
        return spans

    def _numbering(self, position: Position) -> Series | None:
        return Series.parse(position.metadata) if self.receipts else None

    def since_then(self, now: Mapping[TopicPartition, Position]) -> Ranges:
        """Return the ranges processed after the committed offsets, and without receipts."""
        ranges: dict[TopicPartition, tuple[int, int]] = {}
        for p, position in now.items():
            portion = self.by_partition.get(p)
            later = self._numbering(position)
            if portion is None:
                start, is_receipted = self.firsts[p], later is not None
            else:
                start, series = portion.committed.offset or 0, portion.series
                is_receipted = (
                    series is not None and later is not None and (later.since == series.since)
                )
            if not is_receipted and p.topic not in self.remembered:
                ranges[p] = start, position.offset or 0
        return ranges

    def not_judged(self, now: Mapping[TopicPartition, Position]) -> tuple[Ranges, Ranges]:
        """Return the processed ranges before, and after, the input judged by functions."""
        known = {p: one for p, one in self.by_partition.items() if p.topic not in self.remembered}
        before = {p: (portion.first, portion.start) for p, portion in known.items()}
        behind = {
            p: (portion.end, now.get(p, portion.committed).offset or 0)
            for p, portion in known.items()
            if portion.series is None
        }
        return before, behind

    def refuse_functions(self, topics: Collection[str]) -> None:
        """Raise if receipts do not cover all judged records of some topics.

        Raises:
            StartRefused: names the first range without receipts.
        """
        for p, (start, end) in self.derived.items():
            if p.topic in topics and start < end:
                raise _without_receipts(p, start, end)

    def refuse_nothing(self) -> None:
        """Raise if input was left out and none remains to be judged.

        Raises:
            StartRefused: names the first range without receipts.
        """
        if self.share == 0:
            p, (start, end) = next(iter(self.left_out.items()))
            raise _without_receipts(p, start, end)


def _without_receipts(p: TopicPartition, start: int, end: int) -> StartRefused:
    return StartRefused(
        f"{p}@{start} to @{end - 1} have no receipts in the committed numbering; audit "
        f"from {p}@{end} on, or let functions judge (--by auto) where tasks are "
        f"stateless. Workers write receipts with worker.receipts=true"
    )


def divide(
    scope: Scope,
    committed: Mapping[TopicPartition, Position],
    logs: Logs,
    *,
    receipts: bool,
    remembered: frozenset[str] = frozenset(),
) -> Portions:
    """Return the judged part of each partition with a committed offset.

    Args:
        scope: requested by the user.
        committed: committed positions with an offset.
        logs: the application's topics.
        receipts: receipts may judge.
        remembered: topics whose records functions cannot judge; with `--from beginning`, these are
            judged from their first receipt on.

    Raises:
        ConfigurationError: the scope ends before it begins, or names a partition that is not an
            input.
        StartRefused: the scope begins after every committed offset.
    """
    for bound in (scope.start, scope.end):
        _refuse_unknown(bound, logs)
    inputs = list(committed)
    all_firsts = logs.firsts(logs.inputs)
    firsts = {p: all_firsts[p] for p in inputs}
    positions = {p: position.offset or 0 for p, position in committed.items()}
    starts = _offsets(scope.start, firsts, positions, firsts, logs)
    ends = _offsets(scope.end, firsts, positions, positions, logs)
    for p in inputs:
        if starts[p] > ends[p] and (scope.end.text != END or scope.start.text == END):
            raise scope.backwards(f": of {p}, @{starts[p]} after @{ends[p]}")
    _refuse_unprocessed(scope, starts, positions)
    portions: dict[TopicPartition, Portion] = {}
    for p, position in committed.items():
        end = max(min(ends[p], positions[p]), firsts[p])
        wanted = start = min(max(starts[p], firsts[p]), end)
        series = Series.parse(position.metadata) if receipts else None
        if p.topic in remembered and scope.start.text == BEGINNING:
            start = min(max(start, end if series is None else series.since), end)
        portions[p] = Portion(firsts[p], wanted, start, end, position, series)
    return Portions(scope, receipts, remembered, all_firsts, portions)


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
