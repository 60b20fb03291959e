"""A step over batches of records, as a user wrote it."""

from __future__ import annotations

from pydantic import Field

from eosframework.topology.spec.declared import Declared


class BatchSpec(Declared):
    """Call a function with a batch of records, whose values' fields are columns."""

    call: str
    """module:function that takes a pyarrow.RecordBatch. Its result must not depend on how records
    are cut into batches."""

    schema_: str | dict[str, str] | None = Field(default=None, alias="schema")
    """Columns to read of the JSON values: types by name, or the module:attribute of a
    pyarrow.Schema or a pydantic model. Only for the first batch operator behind a source; those
    that follow take the columns that it gives."""
