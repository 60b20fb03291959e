"""How the demo tells what happens: bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

LINE_SECONDS = 10.0


class Story:
    """Says one thing after the other, with the seconds since the beginning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return time.monotonic() - self._began

    def title(self, text: str) -> None:
        """Say what this is about."""
        self._console.print(f"[bold]{text}[/bold]", highlight=False)

    def say(self, text: str, style: str = "") -> None:
        """Say what happened."""
        self._console.print(
            f"[dim]{self.seconds:6.1f} s[/dim]  {text}",
            style=style,
            highlight=False,
            soft_wrap=True,
        )

    def plain(self, text: str = "") -> None:
        """Say something without the time."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def bars(self, total: int, *names: str) -> Bars:
        """Return the bars of a run over `total` records, to be used as a context.

        Args:
            total: how many records there are.
            names: what is counted.
        """
        return Bars(self, self._console, total, names)


class Bars:
    """How far each stage of a run is."""

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
        """Draw, or say it in a line if the last one is old enough.

        Args:
            counts: one for each name.
        """
        for stage, count in zip(self._stages.values(), counts, strict=True):
            self._progress.update(stage, completed=count)
        if self._progress.disable and time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            stages = zip(self._stages, counts, strict=True)
            self._story.say(", ".join(f"{count:,} {name}" for name, count in stages))
