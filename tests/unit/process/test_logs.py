"""A log event of an error carries its traceback, and no local variable of anything."""

from __future__ import annotations

import json
import logging.handlers
from collections.abc import Iterator

import pytest
import structlog

from eosframework.config import LogFormat, LogSettings
from eosframework.process.logs import CLIENT_LOGGER, configure_embedded_logs, configure_logs

SECRET = "p4ssw0rd"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    structlog.reset_defaults()  # A command that another test ran here has configured it.
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)
    client = logging.getLogger(CLIENT_LOGGER)
    client.setLevel(logging.NOTSET)
    client.filters.clear()


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


def test_a_terminal_shows_one_line_for_an_event_with_what_a_person_reads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(LogSettings(format=LogFormat.CONSOLE))
    logger = structlog.get_logger("eosframework.worker")
    logger.info(
        "task_assigned",
        application="shop",
        transactional_id="shop:worker.vm:0",
        task="orders[0]",
        offsets={"orders[0]": 7, "payments[0]": 9},
    )
    logger.warning("record_skipped", error="two\nlines")
    assigned, skipped = capsys.readouterr().err.splitlines()
    assert assigned.split(maxsplit=1)[1].split() == [
        "task_assigned",
        "task=orders[0]",
        "offsets=orders[0]:",
        "7,",
        "payments[0]:",
        "9",
        "transactional_id=shop:worker.vm:0",
    ]
    assert "warning" in skipped
    assert r"error='two\nlines'" in skipped


def test_a_program_that_configured_structlog_keeps_its_configuration() -> None:
    events: list[structlog.typing.EventDict] = []

    def keep(_: object, __: str, event: structlog.typing.EventDict) -> str:
        events.append(event)
        raise structlog.DropEvent

    structlog.configure(processors=[keep])
    handlers = logging.getLogger().handlers[:]
    configure_embedded_logs(LogSettings())
    structlog.get_logger("eosframework.worker").info("task_assigned", task="orders[0]")
    assert events == [{"event": "task_assigned", "task": "orders[0]"}]
    assert logging.getLogger().handlers == handlers


def test_a_program_that_configured_logging_keeps_its_handlers_and_level() -> None:
    root = logging.getLogger()
    handler = logging.handlers.BufferingHandler(capacity=1000)
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    configure_embedded_logs(LogSettings(level="debug"))
    logger = structlog.get_logger("eosframework.worker")
    logger.debug("not_shown")
    logger.info("task_assigned", task="orders[0]")
    assert [(record.name, record.getMessage()) for record in handler.buffer] == [
        ("eosframework.worker", "event='task_assigned' task='orders[0]'")
    ]
    assert (root.handlers, root.level) == ([handler], logging.INFO)


def test_a_program_without_a_configuration_gets_that_of_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logging.getLogger().handlers[:] = []
    configure_embedded_logs(LogSettings(format=LogFormat.JSON))
    structlog.get_logger("eosframework.worker").info("task_assigned")
    assert json.loads(capsys.readouterr().err)["event"] == "task_assigned"
