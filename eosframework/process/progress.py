"""Progress of running workers: a line on a terminal, log events elsewhere.

While stores are restored, the terminal shows a progress bar.

Workers under a supervisor report through a pipe, and the supervisor shows the sum.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from typing import Any

import orjson
import structlog
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from eosframework.engine.worker.worker_plan import WorkerCounts
from eosframework.process.terminal import printable, unescaped


class TerminalConsole(Console):
    """A console whose own colors reach the terminal, and no control character of a text.

    Args:
        stderr: write to stderr instead of stdout.
        options: of rich's console.
    """

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(file=unescaped(sys.stderr if stderr else sys.stdout), **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string as text; it is escaped first, so that columns have room for that."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable, with escapes in their texts."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


PIPE_VARIABLE = "EOS_PROGRESS_PIPE"
_LINE_SECONDS = 0.5
_EVENT_SECONDS = 10.0
_BAR_WIDTH = 40

Show = Callable[[WorkerCounts], None]


class ProgressLine:
    """One line at the bottom of the terminal, redrawn in place."""

    def __init__(self) -> None:
        # A log event stays one line, to be copied whole; the terminal breaks it.
        self.console = TerminalConsole(stderr=True, soft_wrap=True)
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._last_seconds, self._last_records = time.monotonic(), 0
        self._due = 0.0
        self._restore = RestoreProgress()

    def __enter__(self) -> ProgressLine:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, counts: WorkerCounts) -> None:
        """Redraw if the last drawing is old enough."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _LINE_SECONDS
        seconds = max(now - self._last_seconds, 1e-9)
        rate = max(counts.records - self._last_records, 0) / seconds
        self._last_seconds, self._last_records = now, counts.records
        if self._restore.look(counts, now):
            self._live.update(self._restore.bar(), refresh=True)
        else:
            self._live.update(Text(_line(counts, rate), no_wrap=False), refresh=True)


class RestoreProgress:
    """Progress of restoring stores from their changelogs."""

    def __init__(self) -> None:
        self._began_at = 0.0
        self._total = self._left = 0
        self._per_second = 0.0

    def look(self, counts: WorkerCounts, now: float) -> bool:
        """Note the number of records to restore; return whether there are any.

        Records of partitions that are assigned later are added to the total.
        """
        if counts.restoring == 0:
            self._total = 0
            return False
        if self._total == 0:
            self._began_at, self._total, self._left = now, counts.restoring, counts.restoring
        self._total += max(counts.restoring - self._left, 0)
        self._left = counts.restoring
        self._per_second = (self._total - self._left) / max(now - self._began_at, 1e-9)
        return True

    @property
    def text(self) -> str:
        """Records left, records per second and the remaining time."""
        rate = f"{self._left:,} of {self._total:,} records to restore"
        if self._per_second == 0:
            return rate
        return f"{rate}  {self._per_second:,.0f}/s  {self._left / self._per_second:,.0f} s left"

    def bar(self) -> Table:
        """Return the bar with its text."""
        row = Table.grid(padding=(0, 1))
        done = ProgressBar(total=self._total, completed=self._total - self._left, width=_BAR_WIDTH)
        row.add_row(done, Text(self.text))
        return row


class ProgressEvents:
    """A `progress` log event every ten seconds while records are processed."""

    def __init__(self) -> None:
        self._events = structlog.get_logger("eosframework.progress")
        self._due = time.monotonic() + _EVENT_SECONDS
        self._shown_records: int = 0

    def show(self, counts: WorkerCounts) -> None:
        """Log if the interval is over and records were processed in it."""
        now = time.monotonic()
        if now >= self._due and counts.records != self._shown_records:
            self._due = now + _EVENT_SECONDS
            self._shown_records = counts.records
            self._events.info("progress", **asdict(counts))


class _NotebookLine:
    """One line in the output of a notebook's cell, written again in place."""

    def __init__(self) -> None:
        self._last_seconds, self._last_records = time.monotonic(), 0
        self._width = 0
        self._restore = RestoreProgress()

    def show(self, counts: WorkerCounts) -> None:
        """Write the line again."""
        now = time.monotonic()
        rate = max(counts.records - self._last_records, 0) / max(now - self._last_seconds, 1e-9)
        self._last_seconds, self._last_records = now, counts.records
        is_restoring = self._restore.look(counts, now)
        text = self._restore.text if is_restoring else _line(counts, rate).strip()
        print(f"\r{text:<{self._width}}", end="", flush=True)
        self._width = len(text)


@contextmanager
def notebook_line() -> Generator[Show]:
    """Show progress in the output of a notebook's cell during the block."""
    shown = _NotebookLine()
    try:
        yield shown.show
    finally:
        print(flush=True)


@contextmanager
def terminal_line() -> Generator[Show]:
    """Show progress at the bottom of the terminal during the block."""
    with ProgressLine() as shown:
        yield shown.show


class ProgressPipe:
    """Reports counts to the supervisor that started this process.

    Args:
        descriptor: of the pipe's writing end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._due = 0.0
        os.set_blocking(descriptor, False)

    def show(self, counts: WorkerCounts) -> None:
        """Write the counts as one JSON line; a full or closed pipe loses only the display."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _LINE_SECONDS
        try:
            os.write(self._descriptor, orjson.dumps(asdict(counts)) + b"\n")
        except (BlockingIOError, BrokenPipeError):
            return


def report_error(message: str) -> None:
    """Report the error that ends this process to the supervisor that started it, if one did."""
    if (pipe := os.environ.get(PIPE_VARIABLE)) is None:
        return
    line = orjson.dumps({"error": message}) + b"\n"
    # A longer line is not written at once; stderr has the message.
    if len(line) <= select.PIPE_BUF:
        with suppress(OSError):
            os.write(int(pipe), line)


def _line(counts: WorkerCounts, records_per_second: float) -> str:
    """Return the progress line; what did not happen is left out."""
    happened = {
        "dead letters": counts.dead_letters,
        "skipped": counts.skipped,
        "late": counts.late,
        "retries": counts.retries,
        "aborts": counts.aborts,
        "fenced": counts.fences,
        "recycles": counts.recycles,
    }
    return (
        f"{records_per_second:>9,.0f} records/s  {counts.records:,} records  lag {counts.lag:,}  "
        f"commits {counts.commits:,}"
        + "".join(f"  {name} {count:,}" for name, count in happened.items() if count)
    )


def total(parts: list[WorkerCounts]) -> WorkerCounts:
    """Return the sum of several workers' counts."""
    return WorkerCounts(
        **{
            field.name: sum(getattr(part, field.name) for part in parts)
            for field in fields(WorkerCounts)
        }
    )


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


def reporter() -> ProgressPipe | ProgressEvents | None:
    """Return the reporter of a process that shows no progress line; None: it shows one."""
    pipe = os.environ.get(PIPE_VARIABLE)
    if pipe is not None:
        return ProgressPipe(int(pipe))
    return None if sys.stderr.isatty() else ProgressEvents()
