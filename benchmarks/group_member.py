"""A group member that prints each record it consumes: clock, partition, offset.

Arguments: topic, and the consumer's properties as one JSON object. A member that fails for good
begins again as a new one, as it would under a supervisor.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Consumer, KafkaException

PAUSE_SECONDS = 0.1


def main() -> None:
    topic, properties = sys.argv[1], json.loads(sys.argv[2])
    while True:
        consumer = Consumer(properties)
        consumer.subscribe([topic])
        try:
            while True:
                for message in consumer.consume(100, 0.1):
                    if error := message.error():
                        raise KafkaException(error)
                    print(time.monotonic(), message.partition(), message.offset(), flush=True)
        except (KafkaException, RuntimeError) as error:
            print(f"begins again: {error}", file=sys.stderr, flush=True)
        consumer.close()
        time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
