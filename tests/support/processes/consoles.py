"""A console in a process of its own, and its pages as a browser without scripts reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode

from tests.support.processes.programs import FRAMEWORK, Running, fork_program
from tests.support.processes.waiting import wait_until
from tests.support.verifiers.logged import logged

FORM_TOKEN = re.compile(r'name="form_token" value="([^"]+)"')


@dataclass(frozen=True)
class Answer:
    """What a console answers."""

    status: int
    headers: Mapping[str, str]
    html: str

    @property
    def text(self) -> str:
        """What stands on the page, tool tips included, with single spaces."""
        reader = _Text()
        reader.feed(self.html)
        return " ".join(" ".join(reader.parts).split())

    @property
    def form_token(self) -> str:
        found = FORM_TOKEN.search(self.html)
        assert found is not None, self.html
        return unescape(found[1])

    def field(self, name: str) -> str:
        found = re.search(rf'name="{name}" value="([^"]*)"', self.html)
        assert found is not None, self.html
        return unescape(found[1])

    def rows(self, label: str) -> list[list[str]]:
        """The cells of the table in the region with this label."""
        start = self.html.index(f'aria-label="{label}"')
        body = self.html[start : self.html.index("</table>", start)]
        cells = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r, re.S) for r in body.split("<tr")[2:])
        return [[unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in row] for row in cells]


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


class ConsoleProcess:
    """A running `eosframework console`."""

    def __init__(self, process: Running, log_file: Path) -> None:
        self.process = process
        self.log_file = log_file

    @property
    def address(self) -> str:
        wait_until(lambda: bool(self._served()) or self.process.poll() is not None, "a console")
        assert self._served(), self.log_file.read_text()
        return str(self._served()[0]["address"])

    def _served(self) -> list[dict[str, object]]:
        found = logged(self.log_file.read_text()) if self.log_file.exists() else []
        return [event for event in found if event.get("event") == "console_serving"]

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(
        self, path: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Answer:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._ask("POST", path, urlencode(form), {**kind, **dict(headers or {})})

    def wait_for(self, path: str, text: str) -> Answer:
        """Load a page until it has this text."""
        last: list[Answer] = []

        def has_text() -> bool:
            last[:] = [self.get(path)]
            return text in last[0].text

        try:
            wait_until(has_text, f"{text!r} on {path}")
        except AssertionError as error:
            raise AssertionError(f"{error}; the page has: {last[0].text}") from None
        return last[0]

    def _ask(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str] | None
    ) -> Answer:
        connection = HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            content = response.read().decode()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, content)
        except (OSError, HTTPException) as error:
            raise AssertionError(f"{method} {path}: {error}; {self.log_file.read_text()}") from None
        finally:
            connection.close()


@contextmanager
def running_console(
    directory: Path,
    topology: Path | str,
    *arguments: str,
    settings: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[ConsoleProcess]:
    """Run a console on any free port for the length of the block."""
    number = len(list(directory.glob("console*.log")))
    log_file = directory / f"console{number}.log"
    command = ["console", str(topology), "--address", "127.0.0.1:0", *arguments]
    for setting in settings:
        command += ["--set", setting]
    process = fork_program(FRAMEWORK, command, environment=dict(environment or {}), out=log_file)
    try:
        yield ConsoleProcess(process, log_file)
    finally:
        process.kill()
        process.wait()
