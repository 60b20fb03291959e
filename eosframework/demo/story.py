"""The output of a demo: progress bars on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

LINE_SECONDS = 10.0


class Story:
    """Prints events, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def title(self, text: str) -> None:
        """Print the title."""
        self._console.print(f"[bold]{text}[/bold]", highlight=False)

    def say(self, text: str, style: str = "") -> None:
        """Print an event."""
        self._console.print(
            f"[dim]{self.seconds:6.1f} s[/dim]  {text}",
            style=style,
            highlight=False,
            soft_wrap=True,
        )

    def plain(self, text: str = "") -> None:
        """Print text without the time."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def bars(self, total: int, *names: str) -> Bars:
        """Return the bars of a run over `total` records, a context manager.

        Args:
            total: number of records.
            names: names of the counters.
        """
        return Bars(self, self._console, total, names)


class Bars:
    """The progress of each stage of a run."""

    def __init__(self, story: Story, console: Console, total: int, names: Sequence[str]) -> None:
        self._story = story
        self._due = time.monotonic() + LINE_SECONDS
        self._progress = Progress(
            TextColumn("          {task.description:<10}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._stages = {name: self._progress.add_task(name, total=total) for name in names}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, *counts: int) -> None:
        """Draw, or print a line if the last one is old enough.

        Args:
            counts: one for each name.
        """
        for stage, count in zip(self._stages.values(), counts, strict=True):
            self._progress.update(stage, completed=count)
        if self._progress.disable and time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            stages = zip(self._stages, counts, strict=True)
            self._story.say(", ".join(f"{count:,} {name}" for name, count in stages))
