"""What users need to test their own topologies.

`TopologyTestDriver` runs a topology in this process, without a broker: for what the functions and
the topology do, with `crash_everywhere` for what becomes of state, and with `cut_everywhere` for
functions over batches. `TopologyDriver` is its small sister for topologies that keep nothing.
`faults` makes a real worker crash, stop or wait at a named point of the protocol: for what the
guarantee does. `fixtures` gives pytest a real Kafka and a real PostgreSQL: embedded ones, others in
containers, or servers that run already. Nothing here stands in for Kafka: a claim about
exactly-once needs a real broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eosframework.testing.faults import Fault, arm, fired

if TYPE_CHECKING:
    from eosframework.testing.driver import Sent, TopologyDriver
    from eosframework.testing.everywhere import crash_everywhere, cut_everywhere
    from eosframework.testing.topology_driver import TopologyTestDriver

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
    "Sent": "driver",
    "TopologyDriver": "driver",
    "TopologyTestDriver": "topology_driver",
    "crash_everywhere": "everywhere",
    "cut_everywhere": "everywhere",
}
"""Modules that are imported at the first use: a worker that only arms faults needs neither."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
