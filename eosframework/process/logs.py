"""Log events on stderr: a stable name with fields, as text on a terminal, else as JSON lines.

A program that runs a worker keeps its own configuration of logs (`configure_embedded_logs`).
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

import structlog

from eosframework.config import LogFormat, LogSettings
from eosframework.process.client_log import CLIENT_LOGGER, Repetitions, name_failed_connection
from eosframework.process.terminal import printable, unescaped


def configure_logs(settings: LogSettings) -> None:
    """Send every log event of this process to stderr as `settings` say."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    on_terminal = settings.format is LogFormat.CONSOLE or (
        settings.format is LogFormat.AUTO and sys.stderr.isatty()
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(
            fmt="%H:%M:%S" if on_terminal else "iso", utc=not on_terminal
        ),
    ]
    renderer = _line_renderer() if on_terminal else structlog.processors.JSONRenderer()
    # The console's renderer prints tracebacks itself, and JSON has no control characters.
    tracebacks = [_for_a_person, _escape] if on_terminal else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = _CurrentStderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, name_failed_connection],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *tracebacks,
                renderer,
            ],
        )
    )
    handler.addFilter(Repetitions())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    if level > logging.DEBUG:
        # Below errors, librdkafka logs failures that it retries itself.
        logging.getLogger(CLIENT_LOGGER).setLevel(max(level, logging.ERROR))


def configure_embedded_logs(settings: LogSettings) -> None:
    """Configure log events as far as the program that runs a worker has not done so.

        the program has configured     log events
        structlog                      follow its configuration
        handlers of logging's root     go through them, as `event='…' name='…'`
        neither                        go to stderr as `settings` say

    Args:
        settings: used if the program has configured neither.
    """
    if structlog.is_configured():
        return
    if not logging.getLogger().handlers:
        configure_logs(settings)
        return
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    client = logging.getLogger(CLIENT_LOGGER)
    if client.level == logging.NOTSET:
        client.setLevel(logging.ERROR)
    client.addFilter(Repetitions())


def _line_renderer() -> structlog.dev.ConsoleRenderer:
    """Return the renderer of one line: the time, a level above info, the event, its fields."""
    colored = sys.stderr.isatty()
    bold, dim, cyan, end = ("\x1b[1m", "\x1b[2m", "\x1b[36m", "\x1b[0m") if colored else ("",) * 4
    styles = structlog.dev.ConsoleRenderer.get_default_level_styles(colored)

    def part(key_style: str | None, value_style: str, width: int = 0) -> Any:
        return structlog.dev.KeyValueColumnFormatter(key_style, value_style, end, _text, width)

    return structlog.dev.ConsoleRenderer(
        columns=[
            structlog.dev.Column("timestamp", part(None, dim)),
            structlog.dev.Column("level", structlog.dev.LogLevelColumnFormatter(styles, end)),
            structlog.dev.Column("event", part(None, bold, 24)),
            structlog.dev.Column("", part(cyan, "")),
        ],
        # Others show local variables, and secrets are among them.
        exception_formatter=_print_traceback,
        sort_keys=False,
    )


_SAME_IN_ALL = ("application", "logger")
"""Fields that are left out on a terminal."""

_AT_THE_END = ("instance", "transactional_id")


def _for_a_person(_logger: Any, _name: str, event: structlog.typing.EventDict) -> Any:
    """Leave out fields that a person does not read, and put ids after the others."""
    for name in _SAME_IN_ALL:
        event.pop(name, None)
    if event.get("level") in ("debug", "info"):
        del event["level"]
    ids = {name: event.pop(name) for name in _AT_THE_END if name in event}
    return {**event, **ids}


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value).items()
        return ", ".join(f"{key}: {_text(entry)}" for key, entry in entries) or "none"
    if isinstance(value, str):
        return repr(value) if "\n" in value else value
    return str(value)


def _escape(_logger: Any, _name: str, event: structlog.typing.EventDict) -> Any:
    """Escape the texts of an event; of other values it is their repr that is shown."""
    return {k: printable(v) if isinstance(v, str) else v for k, v in event.items()}


def _print_traceback(file: TextIO, found: structlog.typing.ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, found)
    file.write(printable(text.getvalue()))


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`, which a progress line replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self.stream = unescaped(sys.stderr)
        super().emit(record)
