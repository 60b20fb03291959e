"""Memory, descriptors and threads of a soak's workers over time, and whether they rise."""

from __future__ import annotations

import csv
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.soak.recording import Background
from tests.support.faults.heap_report import read_report

SAMPLE_SECONDS = 5.0

JUDGED_SECONDS = 240.0
"""A process that lived for less is not judged."""

MEMORY_JUDGED_SECONDS = 1800.0
"""The same for its memory: the allocator's arenas fill for longer. With outputs of 300 KB and a
takeover every few seconds, 110 MB became 220 within eight minutes (seen)."""

ALLOWED_RISE: Mapping[str, float] = {
    "rss_bytes": 12 * 2**20,
    "used_bytes": 12 * 2**20,
    "descriptors": 8,
    "threads": 8,
}
"""From the middle of a process's life to its end, by the slope of that half. An allocator's noise
and the tasks of a rebalance stay below."""

MEDIANS_APART = 0.8
"""Share of the half that lies between the tenths whose medians are compared: a tenth of a life is a
fifth of its half."""

MEMORY = ("rss_bytes", "used_bytes")


class Sample(NamedTuple):
    """What one process has at one moment."""

    at_seconds: float
    """Since the recorder was started."""
    worker: str
    pid: int
    started_at: float
    """Since 1970; another process may get the same id within an hour."""
    rss_bytes: int
    used_bytes: int
    """Of the C allocator, in blocks that are in use; 0: the process does not report it."""
    kept_bytes: int
    """Of the C allocator, in freed blocks."""
    python_blocks: int
    trims: int
    longest_trim_ms: float
    descriptors: int
    threads: int


@dataclass(frozen=True)
class Trend:
    """How one figure of a process moved over the second half of its life.

    Args:
        what: a field of `Sample`.
        first: median of the first tenth of the process's life.
        middle: median of the tenth behind its middle.
        last: median of the last tenth.
        per_hour: Theil-Sen slope of the second half, over the least of each tenth of it.
        half_seconds: length of that half.
    """

    what: str
    first: float
    middle: float
    last: float
    per_hour: float
    half_seconds: float

    @property
    def rise(self) -> float:
        """By how much the slope lifts the figure within the half."""
        return self.per_hour * self.half_seconds / 3600

    @property
    def too_steep(self) -> bool:
        """Whether the figure rises by more than noise makes it, in a life that is long enough.

        Both its least values rise and its medians. A leak lifts both. Least values alone rise when
        a process loses its tasks less often than before: its medians stay (seen in an hour).
        """
        least = MEMORY_JUDGED_SECONDS if self.what in MEMORY else JUDGED_SECONDS
        rise = min(self.rise, (self.last - self.middle) / MEDIANS_APART)
        return 2 * self.half_seconds >= least - SAMPLE_SECONDS and rise > ALLOWED_RISE[self.what]

    def __str__(self) -> str:
        unit, scale = ("MiB", 2**20) if self.what in MEMORY else ("", 1)
        first, middle, last, slope = (
            f"{figure / scale:.1f}"
            for figure in (self.first, self.middle, self.last, self.per_hour)
        )
        return f"{self.what} {first}, {middle}, {last} {unit}, {slope} an hour".replace(" ,", ",")


def trends_of(samples: Sequence[Sample]) -> list[Trend]:
    """Return the trends of one process's samples, which are in the order of time."""
    middle = (samples[0].at_seconds + samples[-1].at_seconds) / 2
    half = [sample for sample in samples if sample.at_seconds >= middle]
    tenth = max(len(samples) // 10, 1)
    return [
        Trend(
            what,
            statistics.median(getattr(sample, what) for sample in samples[:tenth]),
            statistics.median(getattr(sample, what) for sample in half[:tenth]),
            statistics.median(getattr(sample, what) for sample in samples[-tenth:]),
            _slope(_least(half, what)) * 3600,
            half[-1].at_seconds - half[0].at_seconds,
        )
        for what in ALLOWED_RISE
    ]


def longest_life(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the process that was seen for the longest time."""
    by_process: dict[tuple[int, float], list[Sample]] = defaultdict(list)
    for sample in samples:
        by_process[sample.pid, sample.started_at].append(sample)
    return max(by_process.values(), key=_seconds, default=[])


def judge(samples: Sequence[Sample]) -> tuple[str, list[str]]:
    """Return what the longest life shows, in a line, and each figure that rises."""
    life = longest_life(samples)
    seconds = _seconds(life)
    if seconds < JUDGED_SECONDS:
        return f"no worker lived for {JUDGED_SECONDS:g} s, so no trend is judged", []
    trends = trends_of(life)
    worker = f"worker {life[0].worker}, process {life[0].pid}, over {seconds:.0f} s"
    told = f"{worker} (first, middle, last): {'; '.join(map(str, trends))}"
    return told, [f"{worker}: {trend} is a trend" for trend in trends if trend.too_steep]


class ResourceRecorder(Background):
    """Samples processes every few seconds, into a file.

    Args:
        processes: gives each process's worker with its id.
        path: of the file, CSV; written as the samples are taken.
        heaps: directory of the processes' reports of their heaps.
    """

    def __init__(
        self, processes: Callable[[], Sequence[tuple[str, int]]], path: Path, heaps: Path
    ) -> None:
        super().__init__("resources")
        self._heaps = heaps
        self.samples: list[Sample] = []
        self._processes = processes
        self._file = path.open("w", newline="", buffering=1)
        self._rows = csv.writer(self._file)
        self._rows.writerow(Sample._fields)
        self._started = time.monotonic()

    def step(self) -> None:
        for worker, pid in self._processes():
            # A process may end at any moment.
            with suppress(psutil.Error):
                self._take(worker, psutil.Process(pid))
        self.wait(SAMPLE_SECONDS)

    def finish(self) -> None:
        super().finish()
        self._file.close()

    def _take(self, worker: str, process: psutil.Process) -> None:
        with process.oneshot():
            sample = Sample(
                round(time.monotonic() - self._started, 1),
                worker,
                process.pid,
                process.create_time(),
                process.memory_info().rss,
                *read_report(self._heaps, process.pid),
                process.num_fds(),
                process.num_threads(),
            )
        self.samples.append(sample)
        self._rows.writerow(sample)


def _seconds(life: Sequence[Sample]) -> float:
    return life[-1].at_seconds - life[0].at_seconds if life else 0.0


def _least(samples: Sequence[Sample], what: str) -> list[tuple[float, float]]:
    """Return the least of each tenth of some samples: tasks that come and go are no leak."""
    size = max(len(samples) // 10, 1)
    tenths = [samples[start : start + size] for start in range(0, len(samples), size)]
    return [(tenth[0].at_seconds, min(getattr(s, what) for s in tenth)) for tenth in tenths]


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the Theil-Sen slope: the median over all pairs, which single outliers do not move."""
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] > a[0]]
    return statistics.median(slopes) if slopes else 0.0
