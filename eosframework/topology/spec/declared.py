"""What all parts of a spec have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Declared(BaseModel):
    """A part of what a user wrote; a key that is not known is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )
