"""Which part of each input partition is judged, and whether by receipts or by functions.

          first        start        since          end       position
├───────────┼────────────┼────────────┼─────────────┼───────────┤
 not in the    not judged   functions    receipts     not judged
 log any more

Where functions cannot judge, as where tasks remember, the range begins where receipts do: from
`wanted` to `start` it was processed without them, and nothing can judge it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from eosframework.errors import ConfigurationError, StartRefused
from eosframework.kafka.consumer.range_reader import Ranges
from eosframework.operations.audit.audit_logs import Logs, Positions
from eosframework.operations.audit.book import Span
from eosframework.operations.audit.bounds import BEGINNING, END, Bound, Scope
from eosframework.processing.transaction.offsets import Progress
from eosframework.processing.transaction.receipts import Series
from eosframework.records import Position, TopicPartition


@dataclass(frozen=True, slots=True)
class Portion:
    """What is judged of one input partition.

    Args:
        first: first offset in the log.
        wanted: offset of the first record that the scope has.
        start: offset of the first record that is judged.
        end: offset behind the last one; at most that of `committed`.
        series: the numbering of its outputs that receipts judge by; None: functions judge.
    """

    first: int
    wanted: int
    start: int
    end: int
    committed: Position
    series: Series | None

    @property
    def since(self) -> int:
        """Where receipts begin to judge; `end` where they do not."""
        if self.series is None:
            return self.end
        return min(max(self.series.since, self.start), self.end)


@dataclass(frozen=True, slots=True)
class Portions:
    """What is judged, by input partition.

    Args:
        receipts: whether these may judge.
        remembered: topics whose records functions cannot judge.
        firsts: the first offset in the log of every input partition.
        by_partition: those that have a committed position.
    """

    scope: Scope
    receipts: bool
    remembered: frozenset[str]
    firsts: Positions
    by_partition: Mapping[TopicPartition, Portion]

    @property
    def derived(self) -> Ranges:
        """What functions judge."""
        return {p: (portion.start, portion.since) for p, portion in self.by_partition.items()}

    @property
    def left_out(self) -> Ranges:
        """What the scope has and nothing can judge."""
        return {
            p: (portion.wanted, portion.start)
            for p, portion in self.by_partition.items()
            if portion.wanted < portion.start
        }

    @property
    def is_whole(self) -> bool:
        """Whether everything that was processed is judged."""
        return self.scope.is_whole and not self.left_out

    @property
    def share(self) -> float:
        """How much of the scope is judged, by offsets; 1 where the scope has nothing."""
        portions = self.by_partition.values()
        wanted = sum(portion.end - portion.wanted for portion in portions)
        return sum(portion.end - portion.start for portion in portions) / wanted if wanted else 1.0

    @property
    def receipted(self) -> Ranges:
        """What receipts judge."""
        return {
            p: (portion.since, portion.end)
            for p, portion in self.by_partition.items()
            if portion.series is not None
        }

    @property
    def trimmed(self) -> list[TopicPartition]:
        """Partitions whose log has lost records that the scope wants."""
        bounded = self.scope.start.moment is not None or self.scope.start.text == END
        offset, places = self.scope.start.offset or 0, self.scope.start.places
        return [
            p
            for p, portion in self.by_partition.items()
            if not bounded and places.get(p, offset) < portion.first
        ]

    def spans(self, now: Mapping[TopicPartition, Position]) -> list[Span]:
        """Return what receipts judge, with the positions `now` that the outputs are complete.

        A partition that got its first position since then has an empty span: its receipts are
        known, and nothing is judged.
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
        """Return what was processed after the committed positions and has no receipts."""
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
        """Return the processed input before, and behind, what functions judge."""
        known = {p: one for p, one in self.by_partition.items() if p.topic not in self.remembered}
        before = {p: (portion.first, portion.start) for p, portion in known.items()}
        behind = {
            p: (portion.end, now.get(p, portion.committed).offset or 0)
            for p, portion in known.items()
            if portion.series is None
        }
        return before, behind

    def refuse_functions(self, topics: Collection[str]) -> None:
        """Raise if receipts do not judge everything of some topics that is to be judged.

        Raises:
            StartRefused: names the first part without.
        """
        for p, (start, end) in self.derived.items():
            if p.topic in topics and start < end:
                raise _without_receipts(p, start, end)

    def refuse_nothing(self) -> None:
        """Raise if something is left out, and nothing is left to be judged.

        Raises:
            StartRefused: names the first part without receipts.
        """
        if self.share == 0:
            p, (start, end) = next(iter(self.left_out.items()))
            raise _without_receipts(p, start, end)


def _without_receipts(p: TopicPartition, start: int, end: int) -> StartRefused:
    return StartRefused(
        f"{p}@{start} to @{end - 1} have no receipts in the committed numbering; audit "
        f"from {p}@{end} on, or let functions judge (--by auto), which they cannot "
        f"where tasks remember. Workers give receipts with worker.receipts=true"
    )


def divide(
    scope: Scope,
    committed: Mapping[TopicPartition, Position],
    logs: Logs,
    *,
    receipts: bool,
    remembered: frozenset[str] = frozenset(),
) -> Portions:
    """Return what is judged of each partition that has a committed position.

    Args:
        scope: what the user asked for.
        committed: positions with an offset.
        logs: where the partitions are.
        receipts: whether these may judge.
        remembered: topics whose records functions cannot judge; where the user named no beginning,
            these are judged from where their receipts begin.

    Raises:
        ConfigurationError: the scope ends before it begins, or names no input partition.
        StartRefused: the scope begins behind every committed position.
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
    """Return where a bound is in each partition; `default` where it says nothing of one."""
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
                f"{p} is no input partition; expected one of {', '.join(map(str, logs.inputs))}"
            )


def _refuse_unprocessed(scope: Scope, starts: Positions, positions: Positions) -> None:
    asked = scope.start.offset is not None or scope.start.places
    if asked and all(starts[p] >= positions[p] for p in positions):
        behind = ", ".join(f"{p}@{offset}" for p, offset in positions.items())
        raise StartRefused(
            f"nothing from {scope.start.text} on was processed: the committed positions are "
            f"{behind}. Give an earlier --from, or wait for the workers"
        )
