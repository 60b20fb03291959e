"""What users need to test their own topologies.

`TopologyTestDriver` runs a topology in this process, without a broker: for what the functions and
the topology do, and with `crash_everywhere` for what becomes of state. `TopologyDriver` is its
small sister for topologies that keep nothing. `faults` makes a real worker crash, stop or wait at
a named point of the protocol: for what the guarantee does. Nothing here stands in for Kafka: a
claim about exactly-once needs a real broker.
"""

from eosframework.testing.driver import Sent, TopologyDriver
from eosframework.testing.faults import Fault, arm, fired
from eosframework.testing.topology_driver import TopologyTestDriver, crash_everywhere

__all__ = [
    "Fault",
    "Sent",
    "TopologyDriver",
    "TopologyTestDriver",
    "arm",
    "crash_everywhere",
    "fired",
]
