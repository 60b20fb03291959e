"""The declaration of a step over batches of records."""

from __future__ import annotations

from pydantic import Field

from eosframework.topology.spec.declared import Declared


class BatchSpec(Declared):
    """Call a function with a batch of records, whose values' fields are columns."""

    call: str
    """module:function that takes a pyarrow.RecordBatch. Its result must not depend on how records
    are cut into batches."""

    schema_: str | dict[str, str] | None = Field(default=None, alias="schema")
    """Columns to read from the JSON values: types by name, or the module:attribute of a
    pyarrow.Schema or a pydantic model. Only for the first batch operator after a source; later
    batch operators take the columns that the previous one returns."""
