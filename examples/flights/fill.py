"""Fills the topics that delays.yaml reads: python fill.py [MONTH …]; without any, the whole year.

Tables come first: a flight meets what is there when it is processed. The brokers are those of
EOS_KAFKA__BOOTSTRAP_SERVERS. Topics that are there already are left alone.
"""

from __future__ import annotations

import sys

from eosframework.config import load_settings
from eosframework.demo.feeds import FEEDS, MONTHS
from eosframework.demo.nycflights import require_packages
from eosframework.errors import EosError
from eosframework.kafka.admin import ClusterAdmin, TopicToCreate
from eosframework.kafka.feeder import feed

PARTITIONS = 4
KEEP = {"retention.ms": "-1"}
"""The records are of 2013, older than any retention."""


def main() -> None:
    require_packages()
    months = {int(month) for month in sys.argv[1:]} or MONTHS
    settings = load_settings().kafka
    created = ClusterAdmin(settings).create_topics(
        [TopicToCreate(topic, PARTITIONS, config=KEEP) for topic in FEEDS]
    )
    for topic, records in FEEDS.items():
        if topic in created:
            print(f"{topic}: {feed(settings, topic, records(months)):,} records")
        else:
            print(f"{topic} was there")


if __name__ == "__main__":
    try:
        main()
    except EosError as error:
        sys.exit(f"error: {error}")
