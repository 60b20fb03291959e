"""The console of rich for tables and progress; it escapes control characters of what it shows."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

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
