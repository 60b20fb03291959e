"""What checks of names, members and positions find."""

from __future__ import annotations

from dataclasses import replace

from eosframework.application.control_topic import interpret
from eosframework.kafka.admin.metadata import GroupDescription
from eosframework.kafka.inspect.coordinators import TransactionListing
from eosframework.kafka.inspect.formats import TxnState
from eosframework.operations.doctor.findings import Seen, Unseen
from eosframework.records import Position
from tests.support.applications.graphs import graph_of
from tests.unit.operations.doctor.case import Case, E, N, W
from tests.unit.operations.doctor.made_up import (
    EVERYTHING,
    facts,
    snapshot,
    topic,
    with_tables,
    with_topic,
)

CASES = [
    Case(
        "registry-cluster",
        E,
        lambda: snapshot(facts=Seen(facts(cluster_id="cluster-2"))),
        "made on cluster cluster-1",
        "bootstrap_servers",
    ),
    Case(
        "application-name",
        E,
        lambda: snapshot(
            facts=Seen(
                replace(
                    facts(),
                    control=interpret({"topic/other": {"topic_id": "id-8", "partitions": 1}}),
                )
            )
        ),
        "reads other, and this topology reads orders",
        "another name",
    ),
    Case(
        "group-members",
        E,
        lambda: snapshot(group=Seen(GroupDescription(("sarama", "eosframework-x"), EVERYTHING))),
        "1 members of client.id sarama",
        "stop them",
    ),
    Case(
        "group-members",
        E,
        lambda: replace(
            with_tables(), tables_group=Seen(GroupDescription(("sarama",), EVERYTHING))
        ),
        "1 members of client.id sarama",
        "stop them",
    ),
    Case(
        "changed-topics",
        E,
        lambda: snapshot(
            facts=Seen(facts(topics={"orders": replace(topic(), topic_id="new"), "large": topic()}))
        ),
        "deleted and created again",
        "positions set APP TOPIC=earliest",
    ),
    Case(
        "lost-offsets",
        E,
        lambda: snapshot(facts=Seen(facts(committed=(Position("orders", 1, None),)))),
        "has committed orders[1] before",
        "positions set APP",
    ),
    Case(
        "unfinished-backfill",
        E,
        lambda: snapshot(
            facts=Seen(
                replace(
                    facts(committed=(Position("orders", 1, None),)),
                    control=interpret(
                        {
                            "backfill/history": {
                                "suffix": None,
                                "ranges": {
                                    "orders": [{"first": 0, "end": 0}, {"first": 0, "end": 9}]
                                },
                            }
                        }
                    ),
                )
            )
        ),
        "backfill job 'history' of application 'shop' is not complete: 0 of 2 tasks are",
        "eosframework backfill cutover APP",
    ),
    Case(
        "partition-counts",
        E,
        lambda: replace(
            with_topic("large", topic(4)),
            graph=graph_of("shop", {"big": (["orders", "large"], [])}),
            facts=Seen(facts()),
        ),
        "large=4, orders=2",
        "the same number",
    ),
    Case(
        "foreign-ids",
        W,
        lambda: snapshot(ids=Seen((TransactionListing("shop:Other", TxnState.EMPTY, 7, 1),))),
        "not an id of eosframework",
        "eosframework txn describe shop:Other",
    ),
    Case(
        "foreign-ids",
        W,
        lambda: snapshot(ids=Seen((TransactionListing("shop:small:0", TxnState.EMPTY, 7, 1),))),
        "sub-topology small; this topology has big",
        "txn describe shop:small:0",
    ),
    Case(
        "leased-ids",
        E,
        lambda: snapshot(leases=Seen(Unseen("leased transactional ids", "no id left for 2 tasks"))),
        "no id left for 2 tasks",
        "eosframework ids add APP ID...",
    ),
    Case(
        "ids-in-use",
        N,
        lambda: snapshot(
            group=Seen(GroupDescription((), EVERYTHING)),
            ids=Seen((TransactionListing("shop:big:0", TxnState.ONGOING, 7, 1),)),
        ),
        "the group has no member",
        "eosframework txn describe shop:big:0",
    ),
]
