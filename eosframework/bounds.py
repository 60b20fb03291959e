"""Bounds on what foreign records and schemas may make a process do: bytes, depth, counts and time.

docs/reference/bounds.md is made from this table. Settings bound the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound.

    Args:
        value: the largest that is accepted.
        unit: of the value.
        of: the quantity.
        then: the consequence of a larger one.
    """

    value: int
    unit: str
    of: str
    then: str


_DEAD = "`on_error` of the source applies to the record"
_CHILD = "the value is decoded in a child process"

SCHEMA_BYTES = Bound(1_000_000, "bytes", "text of a schema of another writer", _DEAD)
SCHEMA_LEVELS = Bound(200, "levels", "brackets in the text of such a schema", _DEAD)
SCHEMA_REFERENCES = Bound(100, "schemas", "references of such a schema, and theirs", _DEAD)
SCHEMA_TYPES = Bound(
    10_000, "types", "an Avro schema with each named type written out where it is used", _DEAD
)
AVRO_LEVELS = Bound(500, "levels", "nested values that an Avro record may hold", _CHILD)
AVRO_VALUES = Bound(2_000_000, "values", "values that an Avro record may hold", _CHILD)
AVRO_DECIMAL_BYTES = Bound(16_384, "bytes", "an Avro record whose schema has decimals", _CHILD)
DECODING_SECONDS = Bound(2, "seconds of CPU time", "decoding in the child process", _DEAD)
DECODING_BYTES = Bound(2**30, "bytes", "memory of the child process", _DEAD)
DECODED_BYTES = Bound(2**25, "bytes", "value that the child process returns", _DEAD)
UNKNOWN_SCHEMA_SECONDS = Bound(
    10, "seconds", "for which an unknown schema is not asked for again", "the registry is asked"
)

BOUNDS = (
    SCHEMA_BYTES,
    SCHEMA_LEVELS,
    SCHEMA_REFERENCES,
    SCHEMA_TYPES,
    AVRO_LEVELS,
    AVRO_VALUES,
    AVRO_DECIMAL_BYTES,
    DECODING_SECONDS,
    DECODING_BYTES,
    DECODED_BYTES,
    UNKNOWN_SCHEMA_SECONDS,
)
"""All bounds, in the order of the page."""
