"""Schemas of other writers, as the registry has them: checked before a library parses them.

A registry takes any schema of any principal that may write to it. An answer that there is none is
remembered for a while, or each record that names such a schema would cost a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from eosframework.kafka.schema_registry.registry_client import NOT_REGISTERED
from eosframework.serialization.avro_cost import levels_of
from eosframework.serialization.bounds import (
    SCHEMA_BYTES,
    SCHEMA_LEVELS,
    SCHEMA_REFERENCES,
    UNKNOWN_SCHEMA_SECONDS,
)

KNOWN = 10_000
"""So many answers are remembered; then all are forgotten."""


_BY_ID, _BY_GUID = 5, 17
"""Bytes that name a value's schema: a magic byte with an id, or another one with a GUID."""


def schema_name(data: bytes) -> bytes:
    """Return the bytes in front of a value that name its schema."""
    return data[: _BY_GUID if data[:1] == b"\1" else _BY_ID]


class ForeignSchemas:
    """Takes over how a client looks up the schemas of records.

    Args:
        client: of a registry; it keeps the schemas that it has found.
        clock: seconds, monotonic.
    """

    def __init__(self, client: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._checked: set[object] = set()
        self._refused: dict[object, tuple[float, Exception]] = {}
        by_id, by_guid = client.get_schema, client.get_schema_by_guid
        client.get_schema = self._instead_of(by_id)
        client.get_schema_by_guid = self._instead_of(by_guid)

    def named_in(self, schema: Any) -> dict[str, str]:
        """Return the texts of the schemas that a checked schema refers to, by name."""
        return self._check(schema)

    def _instead_of(self, look_up: Callable[..., Any]) -> Callable[..., Any]:
        def found(*given: Any, **options: Any) -> Any:
            key = (look_up.__name__, *given, *options.items())
            return self._found(key, lambda: look_up(*given, **options))

        return found

    def _found(self, key: object, ask: Callable[[], Any]) -> Any:
        if key in self._checked:
            return ask()
        until, known = self._refused.get(key, (0.0, None))
        if known is not None and self._clock() < until:
            raise known.with_traceback(None)
        try:
            schema = ask()
            self._check(schema)
        except Exception as error:
            if isinstance(error, ValueError) or _is_unknown(error):
                if len(self._refused) >= KNOWN:
                    self._refused.clear()
                self._refused[key] = self._clock() + UNKNOWN_SCHEMA_SECONDS.value, error
            raise
        if len(self._checked) >= KNOWN:
            self._checked.clear()
        self._checked.add(key)
        return schema

    def _check(self, schema: Any) -> dict[str, str]:
        """Return the schemas that it refers to, by name.

        Raises:
            ValueError: names the bound that they exceed.
        """
        named: dict[str, str] = {}
        size, waiting, count = 0, [schema], 0
        while waiting:
            one = waiting.pop()
            text: str = one.schema_str or ""
            size += len(text)
            _refuse_above(size, SCHEMA_BYTES)
            _refuse_above(levels_of(text), SCHEMA_LEVELS)
            # Each path counts: the libraries follow a schema as often as others refer to it.
            count += len(one.references or ())
            _refuse_above(count, SCHEMA_REFERENCES)
            for reference in one.references or ():
                found = self._client.get_version(reference.subject, reference.version, True).schema
                named[reference.name] = found.schema_str
                waiting.append(found)
        return named


def _refuse_above(found: int, bound: Any) -> None:
    if found > bound.value:
        raise ValueError(
            f"the record's schema is refused: {bound.of}: {found} {bound.unit}, expected at most "
            f"{bound.value}"
        )


def _is_unknown(error: Exception) -> bool:
    return getattr(error, "error_code", None) in NOT_REGISTERED
