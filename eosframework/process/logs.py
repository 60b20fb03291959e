"""Log events on stderr: a stable name with fields, as text on a terminal, else as JSON lines.

A program that runs a worker keeps its own configuration of logs (`configure_embedded_logs`).
"""

from __future__ import annotations

import io
import logging
import sys
import time
from typing import Any, TextIO

import structlog

from eosframework.config import LogFormat, LogSettings
from eosframework.process.terminal import printable, unescaped

CLIENT_LOGGER = "eosframework.kafka.librdkafka"
"""Logger of librdkafka's own records."""

REPEAT_SECONDS = 30.0


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
        structlog.processors.TimeStamper(fmt="iso", utc=not on_terminal),
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            pad_event_to=24,
            # Others show local variables, and secrets are among them.
            exception_formatter=_print_traceback,
        )
        if on_terminal
        else structlog.processors.JSONRenderer()
    )
    # The console's renderer prints tracebacks itself, and JSON has no control characters.
    tracebacks = [_escape] if on_terminal else [structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = _CurrentStderr()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *tracebacks,
                renderer,
            ],
        )
    )
    handler.addFilter(_Repetitions())
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
    client.addFilter(_Repetitions())


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


class _Repetitions(logging.Filter):
    """Limits librdkafka's records, since it retries 20 times a second.

    One record of each kind passes every `REPEAT_SECONDS`. Records are of the same kind if their
    first two words, the facility and the client, are the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        if record.name != CLIENT_LOGGER:
            return True
        kind = " ".join(record.getMessage().split(maxsplit=2)[:2])
        now = time.monotonic()
        if now < self._next.get(kind, 0):
            return False
        self._next[kind] = now + REPEAT_SECONDS
        return True
