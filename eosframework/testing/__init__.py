"""Tools for users to test their own topologies.

`TopologyTestDriver` runs a topology in this process, without a broker: for tests of functions and
topologies, with `crash_everywhere` for tests of state, and with `cut_everywhere` for functions over
batches. `TopologyDriver` is a smaller version for topologies without state. `faults` makes a real
worker crash, stop or wait at a named point of the protocol, for tests of the guarantee. `fixtures`
gives pytest a real Kafka and a real PostgreSQL: embedded ones, others in containers, or servers
that are already running. Nothing here replaces Kafka: a claim about exactly-once needs a real
broker.

Public: the names in `__all__` and the pytest plugin `fixtures`; the other modules are internal.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eosframework.testing.faults import Fault, arm, fired

if TYPE_CHECKING:
    from eosframework.testing.everywhere import crash_everywhere, cut_everywhere
    from eosframework.testing.stateless_driver import Sent, TopologyDriver
    from eosframework.testing.topology_test_driver import TopologyTestDriver

__all__ = [
    "Fault",
    "Sent",
    "TopologyDriver",
    "TopologyTestDriver",
    "arm",
    "crash_everywhere",
    "cut_everywhere",
    "fired",
]

_HOMES = {
    "Sent": "stateless_driver",
    "TopologyDriver": "stateless_driver",
    "TopologyTestDriver": "topology_test_driver",
    "crash_everywhere": "everywhere",
    "cut_everywhere": "everywhere",
}
"""Modules that are imported at first use: a worker that only arms faults needs none of them."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
