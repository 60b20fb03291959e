"""Log events: a stable name with its facts, to stderr; for people on a terminal, else JSON."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

import structlog

from eosframework.config import LogFormat, LogSettings

CLIENT_LOGGER = "eosframework.kafka.librdkafka"
"""Where librdkafka's own records go."""

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
            exception_formatter=structlog.dev.plain_traceback,
        )
        if on_terminal
        else structlog.processors.JSONRenderer()
    )
    # The console's renderer prints tracebacks itself.
    tracebacks = [] if on_terminal else [structlog.processors.format_exc_info]
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
        # Below an error librdkafka tells what it retries by itself.
        logging.getLogger(CLIENT_LOGGER).setLevel(max(level, logging.ERROR))


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the time: a progress line puts itself in between."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self.stream = sys.stderr
        super().emit(record)


class _Repetitions(logging.Filter):
    """Lets librdkafka say the same kind of thing once in a while: it retries 20 times a second.

    What a kind is: the facility and the client, the first two words of its records.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record is to be written."""
        if record.name != CLIENT_LOGGER:
            return True
        kind = " ".join(record.getMessage().split(maxsplit=2)[:2])
        now = time.monotonic()
        if now < self._next.get(kind, 0):
            return False
        self._next[kind] = now + REPEAT_SECONDS
        return True
