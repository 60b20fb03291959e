"""OAUTHBEARER tokens of a user's function (`kafka.oauth_cb`), shared by all clients of a process.

confluent_kafka calls `oauth_cb` when it makes a client and after 80% of a token's life, from a
thread of librdkafka. If the function raises, the client's constructor waits for 10 s and reports
only that no token was set. Therefore the function is called here first, and its error is explained.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

from eosframework.config import KafkaSettings
from eosframework.errors import ConfigurationError, TopologyError, raised_by_functions
from eosframework.serialization import references

SHARED_UNTIL = 0.5
"""Fraction of a token's life during which new clients get the same one; librdkafka asks for the
next one at 0.8."""

LEAST_SECONDS = 5.0
"""Remaining life with which an old token is still used if the function fails."""

TokenAnswer = tuple[Any, ...]
"""(token, expiry in seconds since 1970[, principal[, extensions]]), as confluent_kafka takes it."""

_LOG = logging.getLogger("eosframework.kafka")
"""Not that of librdkafka's records, of which only errors are shown."""


class TokenFunction:
    """A user's function as `oauth_cb` of clients.

    Args:
        reference: its name, `module:function`.
        function: takes `sasl.oauthbearer.config` and returns a `TokenAnswer`.
        clock: the time in seconds since 1970.
    """

    def __init__(
        self,
        reference: str,
        function: Callable[[str | None], Any],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.reference = reference
        self._function = function
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: TokenAnswer = ()
        self._shared_until = 0.0

    def __call__(self, config: str | None = None) -> TokenAnswer:
        """Return a token, a new one if half of the last one's life has passed.

        A token that is still valid is returned if the function fails.

        Raises:
            ConfigurationError: names the function and the reason why there is no token.
        """
        with self._lock:
            now = self._clock()
            if self._answer and now < self._shared_until:
                return self._answer
            try:
                answer = self._checked(self._function(config))
            except raised_by_functions() as error:
                return self._in_its_place(error)
            self._answer = answer
            self._shared_until = now + (answer[1] - now) * SHARED_UNTIL
            return answer

    def _in_its_place(self, error: BaseException) -> TokenAnswer:
        """Return the last token if it is valid; else raise the explained error."""
        said = str(error) if isinstance(error, _BadAnswer) else f"raised {_named(error)}"
        if self._answer and self._clock() + LEAST_SECONDS < self._answer[1]:
            _LOG.warning("kafka.oauth_cb=%s %s; the last token is used", self.reference, said)
            return self._answer
        _LOG.warning("kafka.oauth_cb=%s %s", self.reference, said)
        raise ConfigurationError(
            f"kafka.oauth_cb={self.reference} {said}; correct the function or its credentials"
        ) from error

    def _checked(self, answer: Any) -> TokenAnswer:
        expected = "expected (token, expiry in seconds since 1970[, principal[, extensions]])"
        kind = type(answer).__name__
        if not isinstance(answer, tuple) or not 2 <= len(cast(TokenAnswer, answer)) <= 4:
            raise _BadAnswer(f"returned a {kind}; {expected}")  # not its value: it has a token
        token, expiry, *more = cast(TokenAnswer, answer)
        if not isinstance(token, str) or not isinstance(expiry, (int, float)):
            kinds = f"({type(token).__name__}, {type(expiry).__name__})"
            raise _BadAnswer(f"returned {kinds}; {expected}")
        if expiry <= self._clock():
            raise _BadAnswer(
                f"returned a token that expired at {expiry:.0f}; expected a later time, in "
                f"seconds since 1970"
            )
        return (token, float(expiry), *more)


class _BadAnswer(Exception):
    """The function returned no token."""


def token_function(settings: KafkaSettings) -> TokenFunction | None:
    """Return the function that `kafka.oauth_cb` names; None: there is none.

    Raises:
        ConfigurationError: it cannot be imported, or is not a function.
    """
    return _found(settings.oauth_cb) if settings.oauth_cb is not None else None


@cache
def _found(reference: str) -> TokenFunction:
    references.make_importable(Path.cwd())
    try:
        function = references.find(reference)
    except TopologyError as error:
        raise ConfigurationError(f"kafka.oauth_cb: {error}") from error
    if not callable(function):
        raise ConfigurationError(
            f"kafka.oauth_cb={reference} is a {type(function).__name__}; expected a function"
        )
    return TokenFunction(reference, function)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
