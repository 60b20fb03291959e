"""What users need to test their own topologies.

`TopologyDriver` runs records through a topology in this process, without a broker: for what the
functions do. `faults` makes a real worker crash, stop or wait at a named point of the protocol:
for what the guarantee does. Nothing here stands in for Kafka: a claim about exactly-once needs
a real broker.
"""

from eosframework.testing.driver import Sent, TopologyDriver
from eosframework.testing.faults import Fault, arm, fired

__all__ = ["Fault", "Sent", "TopologyDriver", "arm", "fired"]
