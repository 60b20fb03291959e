"""Transport of errors from executors to the driver, through Spark's text of a failure.

Spark gives the driver a text with both tracebacks; the error's type and message are encoded in it,
so that the driver can raise the same error.
"""

from __future__ import annotations

import base64
import re
from itertools import dropwhile, takewhile

import orjson

from eosframework import errors
from eosframework.errors import EosError, RunError

_MARK = "eosframework-failure:"
_MARKED = re.compile(_MARK + r"([A-Za-z0-9_\-=]+)")
_CALL_FAILED = "An error occurred while calling"
"""Of Py4J, in front of what the call raised in the JVM."""

_WAITED = "Exception thrown in awaitResult"
"""Of a thread of the JVM that waited for another one; the reason is its cause."""

_CAUSE = "Caused by: "

_TRACEBACK = "Traceback (most recent call last):"
"""Of a Python worker; its error follows the indented lines, and ends with an empty one."""

_AFTER_ERROR = ("\tat ", _CAUSE)


def encoded(error: EosError) -> RuntimeError:
    """Return the exception to raise on an executor, with the error encoded in it."""
    telling = orjson.dumps({"kind": type(error).__name__, "message": str(error)})
    return RuntimeError(f"{error}\n{_MARK}{base64.urlsafe_b64encode(telling).decode()}")


def failure_of(error: BaseException, where: str = "") -> EosError | None:
    """Return the executor's error from Spark's exception; None: it contains none.

    Args:
        error: of Spark.
        where: what failed, in front of the executor's message.
    """
    found = _MARKED.search(str(error))
    if found is None:
        return None
    telling = orjson.loads(base64.urlsafe_b64decode(found[1]))
    kind = getattr(errors, telling["kind"], RunError)
    return _raised(kind if issubclass(kind, EosError) else RunError, where + telling["message"])


def reason_of(error: BaseException) -> str:
    """Return the error of a Python worker, or the first line that says more than which call failed.

    Args:
        error: of Spark.
    """
    text = str(error)
    if _TRACEBACK in text:
        return _python_error(text.rpartition(_TRACEBACK)[2]) or type(error).__name__
    lines = [line.lstrip(": ").rstrip(".: ") for line in text.splitlines()]
    reasons = [line for line in lines if line and not line.startswith(_CALL_FAILED)]
    if reasons and reasons[0].endswith(_WAITED):
        reasons = [line.removeprefix(_CAUSE) for line in reasons if line.startswith(_CAUSE)]
    return reasons[0] if reasons else type(error).__name__


def _python_error(text: str) -> str:
    """Return the error at the end of a traceback in one line."""
    lines = dropwhile(lambda line: not line or line.startswith(" "), text.splitlines())
    said = takewhile(lambda line: line and not line.startswith(_AFTER_ERROR), lines)
    return " ".join(" ".join(said).split()).rstrip(".")


def _raised(kind: type[EosError], message: str) -> EosError:
    try:
        return kind(message)
    except TypeError:
        return RunError(message)
