"""A log event of an error carries its traceback, and no local variable of anything."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from eosframework.config import LogFormat, LogSettings
from eosframework.process.logs import configure_logs

SECRET = "p4ssw0rd"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def fail() -> None:
    password = SECRET
    raise ZeroDivisionError(f"of {len(password)} characters")


@pytest.mark.parametrize("logger", [structlog.get_logger, logging.getLogger])
@pytest.mark.parametrize("form", [LogFormat.JSON, LogFormat.CONSOLE])
def test_an_error_is_logged_with_its_traceback_and_no_secret(
    form: LogFormat, logger: object, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(LogSettings(format=form))
    try:
        fail()
    except ZeroDivisionError:
        logger("eosframework.test").exception("page_failed")  # type: ignore[operator]
    written = capsys.readouterr().err
    if form is LogFormat.JSON:
        event = json.loads(written)
        assert event["event"] == "page_failed"
        assert "exc_info" not in event
        written = event["exception"]
    assert "Traceback (most recent call last)" in written
    assert "ZeroDivisionError: of 8 characters" in written
    assert SECRET not in written
