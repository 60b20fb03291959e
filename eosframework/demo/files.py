"""Where the demo's topology is, in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

from eosframework.errors import ConfigurationError

_PACKAGE = Path(__file__).parent
_PLACES = (_PACKAGE / "flights", _PACKAGE.parent.parent / "examples" / "flights")


def topology_file() -> Path:
    """Return the demo's topology.yaml; its functions are in flights.py beside it.

    Raises:
        ConfigurationError: the installation is not complete.
    """
    for place in _PLACES:
        if (file := place / "topology.yaml").is_file():
            return file
    raise ConfigurationError(
        f"the demo's topology.yaml is neither in {_PLACES[0]} nor in {_PLACES[1]}; "
        f"install eosframework again"
    )
