"""No control character of data reaches a terminal, whatever a command prints it through."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest
import structlog
import typer
from rich import box
from rich.live import Live
from rich.table import Table

from eosframework.config import LogFormat, LogSettings
from eosframework.process.logs import configure_logs
from eosframework.process.progress import TerminalConsole
from eosframework.process.terminal import escape_output, printable, unescaped
from tests.house import PRODUCT

HOSTILE = "a\x1b]0;title\x07b\r\x9b2Jc"
SHOWN = "a\\u001b]0;title\\u0007b\\u000d\\u009b2Jc"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Print to a terminal for the rest of the test."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm-256color")
    escape_output()
    escape_output()
    assert unescaped(sys.stdout) is unescaped(sys.stderr) is made
    return made


def test_tabs_lines_and_all_that_prints_stay() -> None:
    text = "tab\tline\nπ 日本 \u202e\n"
    assert printable(text) == text
    assert json.loads(printable(json.dumps(HOSTILE, ensure_ascii=False))) == HOSTILE


def print_plainly(text: str) -> None:
    print(text)
    sys.stderr.writelines([text])


def print_by_typer(text: str) -> None:
    typer.echo(text)
    typer.echo(text, err=True, color=True)


def print_a_table(text: str) -> None:
    table = Table(text, box=box.SIMPLE)
    table.add_row(f"[bold]{text}")
    console = TerminalConsole(width=200)
    console.print(table)
    console.print(text)


def log(text: str) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logs(LogSettings(format=LogFormat.CONSOLE))
        try:
            raise ValueError(text)
        except ValueError:
            structlog.get_logger("a").exception("failed", error=text, more=[text])
        logging.getLogger("b").error("%s", text)
    finally:
        structlog.reset_defaults()
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.mark.parametrize("prints", [print_plainly, print_by_typer, print_a_table, log])
def test_control_characters_of_data_are_shown_as_escapes(
    prints: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal(monkeypatch)
    prints(HOSTILE)  # type: ignore[operator]
    written = terminal.getvalue()
    without_colors = re.sub(r"\x1b\[[0-9;]*m", "", written)
    assert without_colors.count(SHOWN) >= 2, written
    assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", without_colors) == []


def test_what_is_drawn_in_place_still_moves_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    console = TerminalConsole(stderr=True)
    with Live(HOSTILE, console=console, auto_refresh=False, transient=True) as live:
        live.update("[red]next", refresh=True)
        print(HOSTILE, file=sys.stderr)
    written = terminal.getvalue()
    assert "\x1b[31mnext" in written
    assert "\x1b[?25l" in written, "the cursor is hidden meanwhile"
    assert "title\x07" not in written


def test_every_console_escapes() -> None:
    others = [
        str(file)
        for file in PRODUCT.rglob("*.py")
        if re.search(r"\bConsole\(", file.read_text().replace("TerminalConsole(Console)", ""))
        and "eosframework/operations/console" not in str(file)
        and file.name != "terminal_console.py"
    ]
    assert others == []
