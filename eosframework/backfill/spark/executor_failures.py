"""What fails on an executor reaches the driver as one line, out of the tracebacks of two languages.

Spark gives the driver a text with everything in it; the error's kind and message are in there once
more, so that it can be raised again as it was.
"""

from __future__ import annotations

import base64
import re

import orjson

from eosframework import errors
from eosframework.errors import EosError, RunError

_MARK = "eosframework-failure:"
_MARKED = re.compile(_MARK + r"([A-Za-z0-9_\-=]+)")


def told(error: EosError) -> RuntimeError:
    """Return what to raise on an executor, so that the driver finds the error in it."""
    telling = orjson.dumps({"kind": type(error).__name__, "message": str(error)})
    return RuntimeError(f"{error}\n{_MARK}{base64.urlsafe_b64encode(telling).decode()}")


def failure_of(error: BaseException) -> EosError | None:
    """Return what failed on an executor, out of what Spark raised; None: something else did."""
    found = _MARKED.search(str(error))
    if found is None:
        return None
    telling = orjson.loads(base64.urlsafe_b64decode(found[1]))
    kind = getattr(errors, telling["kind"], RunError)
    return _raised(kind if issubclass(kind, EosError) else RunError, telling["message"])


def _raised(kind: type[EosError], message: str) -> EosError:
    try:
        return kind(message)
    except TypeError:
        return RunError(message)
