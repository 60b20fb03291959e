"""Write records at a steady rate until asked to stop: SERVERS TOPIC RECORDS_PER_SECOND PARTITIONS.

A value begins with the time of its `produce()`, in nanoseconds since the epoch. What is due at once
goes to one partition, the next to another: as many requests a second whatever the partitions, so
that to feed many of them does not cost the broker more than what is measured.
"""

from __future__ import annotations

import itertools
import os
import signal
import struct
import sys
import time

from confluent_kafka import Producer

VALUE_BYTES = 100
KEYS = 20_000
"""So many that the outputs of a contestant go to all of 1,000 partitions."""
TICK_SECONDS = 0.001
TIME = struct.Struct(">Q")


def main(bootstrap_servers: str, topic: str, records_per_second: int, partitions: int) -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 1})
    rest = b"x" * (VALUE_BYTES - TIME.size)
    keys = [
        itertools.cycle(b"key-%d" % n for n in range(partition, KEYS, partitions))
        for partition in range(partitions)
    ]
    turns = itertools.cycle(range(partitions))
    produce, pack, clock = producer.produce, TIME.pack, time.time_ns
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * records_per_second)
        partition = next(turns)
        for key in itertools.islice(keys[partition], due - sent):
            try:
                produce(topic, pack(clock()) + rest, key, partition)
            except BufferError:  # the broker is behind; what is due is caught up with later
                break
            sent += 1
        producer.poll(0)
        time.sleep(TICK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
