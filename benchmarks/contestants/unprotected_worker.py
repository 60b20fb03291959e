"""`eosframework` whose producers are as a bare librdkafka's: no look at sockets, no statistics."""

from __future__ import annotations

from functools import partial

from eosframework import runtime
from eosframework.cli import main
from eosframework.kafka import defaults
from eosframework.kafka.outputs import KafkaOutputs

if __name__ == "__main__":
    runtime.__dict__["KafkaOutputs"] = partial(KafkaOutputs, protection=False)
    defaults.__dict__["STATISTICS_INTERVAL_MILLISECONDS"] = 0
    main()
