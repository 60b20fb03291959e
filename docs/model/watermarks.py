"""A simulation of ADR 20: watermarks give what a run over the sorted records gives.

    python docs/model/watermarks.py [CASES] [SEED]

Each case draws upstream tasks with records out of order, some of which a filter drops, and a
random log of one downstream partition: records and watermarks of tasks of different speeds. The
operators run over that log as ADR 20 says, and over all records sorted by L. Results and late
records must be equal. Then one rule after the other is removed, which must show.

The cases of idle sources have a clock, which gives records their times: writers are killed and
taken over, sources are written in transactions, and stream time passes idle writers (W5). It must
pass no record, and reach the greatest time in the end.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

END = 10**9
"""A watermark later than every time: the end of the input."""


@dataclass(frozen=True)
class Record:
    """A record of a repartition topic; `written` is L, `number` its place in its writer's order."""

    time: int
    written: int
    key: str
    value: int
    side: int
    writer: int
    number: int


@dataclass(frozen=True)
class Watermark:
    """A promise of a writer; in a writer's own sequence: its stream time, which it may announce."""

    writer: int
    time: int


Event = Record | Watermark
Log = Sequence[Event]
Found = tuple[list[Any], list[tuple[int, int]]]
"""Results and late records."""


def upstream(draw: random.Random) -> list[list[Event]]:
    """Return what each upstream task does: a record is written, or a dropped one moves time."""
    writers: list[list[Event]] = []
    for writer in range(draw.randint(1, 4)):
        at, stream_time, events = draw.randint(0, 20), 0, list[Event]()
        for number in range(draw.randint(0, 25)):
            at += draw.choice([0, 1, 1, 2, 5, 30])
            time = max(0, at - draw.choice([0, 0, 0, 0, 1, 3, 8, 20, 40]))
            stream_time = max(stream_time, time)
            drawn = draw.choice("ab"), draw.randint(1, 9), draw.randint(0, 1)
            if draw.random() < 0.15:
                events.append(Watermark(writer, stream_time))
            else:
                events.append(Record(time, stream_time, *drawn, writer, number))
        writers.append(events)
    return writers


def partition(draw: random.Random, writers: Sequence[Sequence[Event]], share: float) -> Log:
    """Return a log: tasks of random speeds, which announce their time after a share of events."""
    log: list[Event] = []
    left = [list(reversed(events)) for events in writers]
    speeds = [draw.random() ** 3 + 1e-6 for _ in writers]
    while any(left):
        ready = [writer for writer, events in enumerate(left) if events]
        [writer] = draw.choices(ready, [speeds[one] for one in ready])
        event = left[writer].pop()
        if isinstance(event, Record):
            log.append(event)
        if draw.random() < share:
            time = event.written if isinstance(event, Record) else event.time
            log.append(Watermark(writer, time))
    return [*log, *(Watermark(writer, END) for writer in range(len(writers)))]


def in_order(log: Iterable[Event]) -> list[Record]:
    """Return the records in the order of a backfill."""
    records = [event for event in log if isinstance(event, Record)]
    return sorted(records, key=lambda r: (r.written, r.side, r.writer, r.number))


class Time:
    """T: the least watermark of all upstream tasks, once each has one."""

    def __init__(self, writers: int, of: Callable[[Iterable[int]], int] = min) -> None:
        self.now = 0
        self._vector: list[int | None] = [None] * writers
        self._of = of

    def take(self, watermark: Watermark) -> None:
        """Take a watermark; time never goes back."""
        known = self._vector[watermark.writer]
        self._vector[watermark.writer] = max(known or 0, watermark.time)
        found = [time for time in self._vector if time is not None]
        if len(found) == len(self._vector) or self._of is max:
            self.now = max(self.now, self._of(found))


class Operator:
    """An operator: judges a record by `now`, and closes what T has passed."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.late: list[tuple[int, int]] = []

    def take(self, record: Record, now: int) -> None:
        """Take a record."""
        raise NotImplementedError

    def close(self, time: int) -> None:
        """Send and remove what `time` has passed."""
        raise NotImplementedError


class Tumbling(Operator):
    """Sums in tumbling windows, sent when they close."""

    def __init__(self, size: int, grace: int) -> None:
        super().__init__()
        self._size = size
        self._grace = grace
        self._windows: dict[tuple[str, int], tuple[int, int]] = {}

    def take(self, record: Record, now: int) -> None:
        """Take a record."""
        start = record.time - record.time % self._size
        if start + self._size + self._grace <= now:
            self.late.append((record.writer, record.number))
            return
        value, latest = self._windows.get((record.key, start), (0, 0))
        self._windows[record.key, start] = value + record.value, max(latest, record.time)

    def close(self, time: int) -> None:
        """Send and remove what `time` has passed."""
        due = [w for w in sorted(self._windows) if w[1] + self._size + self._grace <= time]
        self.results += [(*window, *self._windows.pop(window)) for window in due]


class Join(Operator):
    """Pairs of two sides within an interval, and records without a partner when it is over.

    Args:
        keeps_written: entries keep their L.
    """

    def __init__(self, interval: int, grace: int, *, keeps_written: bool = True) -> None:
        super().__init__()
        self._interval = interval
        self._reach = interval + grace
        self._keeps_written = keeps_written
        self._entries: dict[tuple[str, int], dict[Record, bool]] = defaultdict(dict)

    def take(self, record: Record, now: int) -> None:
        """Take a record."""
        if record.time + self._reach < now:
            self.late.append((record.writer, record.number))
            return
        own = self._entries[record.key, record.side]
        own[record] = False
        others = self._entries[record.key, 1 - record.side]
        for other in others:
            met = abs(other.time - record.time) <= self._interval
            open_ = other.time + self._reach >= now
            if self._keeps_written:
                open_ = open_ and record.time + self._reach >= other.written
            if met and open_:
                names = sorted([(record.writer, record.number), (other.writer, other.number)])
                self.results.append(tuple(names))
                own[record] = others[other] = True

    def close(self, time: int) -> None:
        """Send and remove what `time` has passed."""
        for entries in self._entries.values():
            for record in [r for r in entries if r.time + self._reach < time]:
                if not entries.pop(record):
                    self.results.append(((record.writer, record.number),))


class Sessions(Operator):
    """Sums in sessions, sent when they close."""

    def __init__(self, gap: int, grace: int) -> None:
        super().__init__()
        self._gap = gap
        self._reach = gap + grace
        self._open: dict[str, list[tuple[int, int, int]]] = defaultdict(list)

    def take(self, record: Record, now: int) -> None:
        """Take a record."""
        if record.time + self._reach < now:
            self.late.append((record.writer, record.number))
            return
        start = end = record.time
        value, others = record.value, list[tuple[int, int, int]]()
        for session in self._open[record.key]:
            first, last, sum_ = session
            joins = first - self._gap <= end and last + self._gap >= start
            if joins and last + self._reach >= now:
                start, end, value = min(start, first), max(end, last), value + sum_
            else:
                others.append(session)
        self._open[record.key] = [*others, (start, end, value)]

    def close(self, time: int) -> None:
        """Send and remove what `time` has passed."""
        for key, sessions in self._open.items():
            self.results += [(key, *s) for s in sessions if s[1] + self._reach < time]
            self._open[key] = [s for s in sessions if s[1] + self._reach >= time]


def run_sorted(operator: Operator, log: Log) -> Found:
    """Run the records sorted by L; stream time is their greatest L."""
    for record in in_order(log):
        operator.close(record.written)
        operator.take(record, record.written)
    operator.close(END)
    return sorted(operator.results), sorted(operator.late)


def run(operator: Operator, log: Log, time: Time, *, by_written: bool = True) -> Found:
    """Run a log with watermarks, in its own order."""
    for event in log:
        if isinstance(event, Record):
            operator.take(event, max(time.now, event.written) if by_written else time.now)
        else:
            time.take(event)
            operator.close(time.now)
    return sorted(operator.results), sorted(operator.late)


def run_reordered(operator: Operator, log: Log, time: Time) -> Found:
    """Run a log with watermarks, through a reorder step."""
    held: list[Event] = []
    for event in log:
        if isinstance(event, Record):
            held.append(event)
            continue
        time.take(event)
        ready = [record for record in in_order(held) if record.written < time.now]
        for record in ready:
            operator.close(record.written)
            operator.take(record, record.written)
        held = [event for event in held if event not in ready]
        operator.close(time.now)
    return sorted(operator.results), sorted(operator.late)


def two_levels(
    seed: int, writers: Sequence[Sequence[Event]], size: int, grace: int, share: float, hold: int
) -> Found:
    """Return windows over the results of windows of two tasks, each of which has one key."""
    draw, middle = random.Random(seed), list[list[Event]]()
    for task, key in enumerate("ab"):
        own = [
            [e if _is_for(e, key) else Watermark(e.writer, _time(e)) for e in w] for w in writers
        ]
        operator, time, events = Tumbling(size, grace), Time(len(writers)), list[Event]()
        for event in partition(draw, own, share):
            if isinstance(event, Record):
                operator.take(event, max(time.now, event.written))
                continue
            time.take(event)
            operator.close(time.now)
            for *_, value, at in operator.results:
                events.append(Record(at, at, "all", value, 0, task, len(events)))
            operator.results.clear()
            events.append(Watermark(task, time.now - hold))
        middle.append(events)
    log = [e for e in partition(draw, middle, 0) if isinstance(e, Record)]
    return run(Tumbling(10, 0), _announced(draw, log, middle, share), Time(len(middle)))


def _announced(
    draw: random.Random, order: Sequence[Record], writers: Sequence[Sequence[Event]], share: float
) -> Log:
    """Return a log with records in an order, and a share of their writers' watermarks between."""
    log, left = list[Event](), [list(reversed(events)) for events in writers]
    for record in order:
        events = left[record.writer]
        while (event := events.pop()) != record:
            if draw.random() < share:
                log.append(event)
        log.append(record)
    return [*log, *(Watermark(writer, END) for writer in range(len(writers)))]


def _is_for(event: Event, key: str) -> bool:
    return isinstance(event, Watermark) or event.key == key


def _time(event: Event) -> int:
    return event.written if isinstance(event, Record) else event.time


def differences(seed: int) -> set[str]:
    """Return the variants whose results differ from those of the sorted run, in one case."""
    draw = random.Random(seed)
    writers = upstream(draw)
    size, grace = draw.choice([5, 10, 20]), draw.choice([0, 2, 10, 30])
    log, count = partition(draw, writers, draw.choice([0, 0.1, 0.5, 1])), len(writers)
    tumbling, join = partial(Tumbling, size, grace), partial(Join, size, grace)
    sessions, keyless = partial(Sessions, size, grace), partial(join, keeps_written=False)
    variants: dict[str, tuple[Callable[[], Operator], Found]] = {
        "windows": (tumbling, run(tumbling(), log, Time(count))),
        "joins": (join, run(join(), log, Time(count))),
        "sessions, reordered": (sessions, run_reordered(sessions(), log, Time(count))),
        "windows, late by T": (tumbling, run(tumbling(), log, Time(count), by_written=False)),
        "windows, greatest watermark": (tumbling, run(tumbling(), log, Time(count, max))),
        "joins, entries without L": (join, run(keyless(), log, Time(count))),
        "sessions, not reordered": (sessions, run(sessions(), log, Time(count))),
    }
    found = {name for name, (new, got) in variants.items() if got != run_sorted(new(), log)}
    for name, hold in (("two levels", size + grace), ("two levels, no hold", 0)):
        runs = [two_levels(seed + n, writers, size, grace, n / 4, hold) for n in (1, 2, 4)]
        if any(other != runs[0] for other in runs) or any(late for _, late in runs):
            found.add(name)
    return found


@dataclass(eq=False)
class Source:
    """The source of a writer: event times by offset, and the end of what is decided."""

    times: list[int]
    stable: int = 0
    position: int = 0
    is_alive: bool = True
    is_idle: bool = False


class Passing:
    """A downstream task whose writers pause, are killed and taken over.

    Args:
        draw: of the schedule.
        without: the removed rule; None: none.

    Attributes:
        is_wrong: stream time passed a record, or was held.
    """

    def __init__(self, draw: random.Random, without: str | None) -> None:
        self._draw = draw
        self._without = without
        self._sources = [Source([]) for _ in range(draw.randint(2, 3))]
        self._log: list[tuple[int, int, bool, bool]] = []
        """The repartition partition: writer, time, whether it is idle, whether it is a record."""
        self._read = self._clock = self._now = 0
        self._known: dict[int, tuple[int, bool]] = {}
        self._passed: dict[int, int] = {}
        self._look: tuple[list[int], int, int] | None = None
        self.is_wrong = False

    def run(self) -> bool:
        """Run a random schedule and then to the end; return whether it went wrong."""
        steps = (self._arrive, self._decide, self._write, self._kill, self._take, self._ask)
        for _ in range(self._draw.randint(20, 120)):
            self._draw.choice(steps)(self._draw.choice(self._sources))
        for source in self._sources:
            source.is_alive = True
        for _ in range(4):
            for step in (self._decide, self._write, self._write, self._ask, self._take, self._ask):
                for source in self._sources:
                    for _ in range(len(self._log) + 1 if step == self._take else 1):
                        step(source)
        latest = max((time for source in self._sources for time in source.times), default=0)
        return self.is_wrong or self._now != latest

    def _arrive(self, source: Source) -> None:
        self._clock += 1
        source.times.append(self._clock)

    def _decide(self, source: Source) -> None:
        source.stable = len(source.times)

    def _kill(self, source: Source) -> None:
        source.is_alive = not source.is_alive

    def _write(self, source: Source) -> None:
        """Run what is decided, in one transaction; a writer that finds nothing is idle."""
        if not source.is_alive:
            return
        writer, new = self._sources.index(source), source.times[source.position : source.stable]
        self._log += [(writer, time, False, True) for time in new]
        time = source.times[source.stable - 1] if source.stable else 0
        self._log.append((writer, time, not new, False))
        source.position = source.stable

    def _take(self, _: Source) -> None:
        """Take some entries, and let time pass the writers of the last look."""
        for _ in range(min(self._draw.randint(1, 4), len(self._log) - self._read)):
            writer, time, is_idle, is_record = self._log[self._read]
            self._read += 1
            self.is_wrong |= is_record and time < self._now
            self._known[writer] = max(time, self._known.get(writer, (0, False))[0]), is_idle
            self._move()
        if self._look is not None and (self._without == "end" or self._read >= self._look[2]):
            writers, until, _ = self._look
            until = self._others() if self._without == "time" else until
            self._passed |= dict.fromkeys(writers, until)
            self._look = None
        self._move()

    def _ask(self, _: Source) -> None:
        """Note the writers whose sources are read to their ends."""
        if self._look is None and len(self._known) == len(self._sources):
            ends = [s.stable if self._without == "log" else len(s.times) for s in self._sources]
            read = [w for w, s in enumerate(self._sources) if s.position >= ends[w]]
            found = [w for w in read if self._known[w][1]]
            self._look = found, self._others(), len(self._log)

    def _others(self) -> int:
        active = [time for time, is_idle in self._known.values() if not is_idle]
        return min(active) if active else max(time for time, _ in self._known.values())

    def _move(self) -> None:
        if len(self._known) == len(self._sources):
            others = self._others()
            passed = others if self._without == "look" else 0
            times = [
                max(time, passed, self._passed.get(writer, 0)) if is_idle else time
                for writer, (time, is_idle) in self._known.items()
            ]
            self._now = max(self._now, min(times))


IDLE = {
    "idle, passed by a look": None,
    "idle, passed by the claim": "look",
    "idle, by the last stable offset": "log",
    "idle, before the own log is read": "end",
    "idle, up to a later time": "time",
}
"""The variants of idle sources, with the removed rule."""


def main() -> int:
    """Run all cases; 0 if the rules hold, and each removed rule shows."""
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    found: Counter[str] = Counter()
    for seed in range(first, first + cases):
        found.update(differences(seed * 1009))
        for name, without in IDLE.items():
            found[name] += Passing(random.Random(seed), without).run()
    [idle, *idle_broken] = IDLE
    whole = ("windows", "joins", "sessions, reordered", "two levels", idle)
    broken = (
        "windows, late by T",
        "windows, greatest watermark",
        "joins, entries without L",
        "sessions, not reordered",
        "two levels, no hold",
        *idle_broken,
    )
    for name in (*whole, *broken):
        print(f"{name:32} {found[name]:>6} of {cases} differ from the sorted run")
    return int(any(found[name] for name in whole) or not all(found[name] for name in broken))


if __name__ == "__main__":
    sys.exit(main())
