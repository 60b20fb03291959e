"""Fill the topics that delays.yaml reads: python fill.py [MONTH …]; default: the whole year.

With --empty the topics are created and stay empty. Tables are filled first, because a flight meets
the rows that exist when it is processed. The brokers are those of EOS_KAFKA__BOOTSTRAP_SERVERS.
Existing topics are not changed.
"""

from __future__ import annotations

import sys

from eosframework.config import load_settings
from eosframework.demo.feeds import FEEDS, MONTHS, require_packages
from eosframework.errors import EosError
from eosframework.kafka.admin.cluster_admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.client.plain_writes import feed

PARTITIONS = 4
KEEP = {"retention.ms": "-1"}
"""The records are of 2013, older than any retention."""


def main() -> None:
    is_empty = sys.argv[1:] == ["--empty"]
    if not is_empty:
        require_packages()
    months = MONTHS if is_empty else {int(month) for month in sys.argv[1:]} or MONTHS
    settings = load_settings().kafka
    created = ClusterAdmin(settings).create_topics(
        [TopicToCreate(topic, PARTITIONS, config=KEEP) for topic in FEEDS]
    )
    for topic, records in FEEDS.items():
        if topic in created:
            count = 0 if is_empty else feed(settings, topic, records(months))
            print(f"{topic}: {count:,} records")
        else:
            print(f"{topic} exists already")


if __name__ == "__main__":
    try:
        main()
    except EosError as error:
        sys.exit(f"error: {error}")
