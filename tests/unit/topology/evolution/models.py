"""Models of the tests about changes."""

from pydantic import BaseModel


class Number(BaseModel):
    """A number."""

    n: int
