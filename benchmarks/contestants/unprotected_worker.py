"""`eosframework` whose producers are as a bare librdkafka's: nothing is ever recycled."""

from __future__ import annotations

from functools import partial

from eosframework.cli import main
from eosframework.kafka import worker_clients
from eosframework.kafka.producer.producer_pool import ProducerPool

if __name__ == "__main__":
    worker_clients.__dict__["ProducerPool"] = partial(ProducerPool, protection=False)
    main()
