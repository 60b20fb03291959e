"""Locations of the demos' examples, in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

from eosframework.errors import ConfigurationError

_PACKAGE = Path(__file__).parent
_PLACES = (_PACKAGE, _PACKAGE.parent.parent / "examples")


def example_file(example: str, name: str) -> Path:
    """Return a file of an example; related files are in the same directory.

    Raises:
        ConfigurationError: the installation is incomplete.
    """
    for place in _PLACES:
        if (file := place / example / name).is_file():
            return file
    raise ConfigurationError(
        f"the demo's {name} is neither in {_PLACES[0] / example} nor in {_PLACES[1] / example}; "
        f"install eosframework again"
    )
