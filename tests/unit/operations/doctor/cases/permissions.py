"""What checks of ACLs find."""

from __future__ import annotations

from dataclasses import replace

from eosframework.kafka.admin.metadata import GroupDescription, TopicDescription
from eosframework.operations.doctor.findings import Seen
from eosframework.txnid import TransactionalId
from tests.unit.operations.doctor.case import Case, E, W
from tests.unit.operations.doctor.made_up import (
    facts,
    snapshot,
    topic,
    with_tables,
    with_topic,
    with_worker,
)

CASES = [
    Case(
        "topic-and-group-acls",
        E,
        lambda: with_topic("large", replace(topic(), allowed=frozenset({"Describe"}))),
        "Write is not allowed",
        "--operation Write --topic large",
    ),
    Case(
        "topic-and-group-acls",
        E,
        lambda: snapshot(group=Seen(GroupDescription((), frozenset({"Describe"})))),
        "Read is not allowed",
        "--operation Read --group shop",
    ),
    Case(
        "topic-and-group-acls",
        E,
        lambda: with_tables("payments", allowed=frozenset({"Describe"})),
        "Read is not allowed",
        "--operation Read --topic payments",
    ),
    Case(
        "topic-and-group-acls",
        E,
        lambda: replace(
            with_tables(), tables_group=Seen(GroupDescription((), frozenset({"Describe"})))
        ),
        "Read is not allowed",
        "--operation Read --group shop:tables",
    ),
    Case(
        "registry-acls",
        E,
        lambda: with_topic(
            "shop-control",
            replace(topic(1, cleanup_policy="compact"), allowed=frozenset({"Describe", "Read"})),
        ),
        "Write is not allowed",
        "--operation Write --topic shop-control",
    ),
    Case(
        "registry-acls",
        W,
        lambda: replace(
            with_topic("shop-control", TopicDescription(exists=False)),
            allowed_on_cluster=Seen(frozenset({"Describe"})),
        ),
        "not allowed Create",
        "eosframework apply APP",
    ),
    Case(
        "ownership-acls",
        E,
        lambda: snapshot(
            facts=Seen(facts(ownership=replace(topic(1), allowed=frozenset({"Read"}))))
        ),
        "Write is not allowed",
        "--operation Write --topic shop-ownership",
    ),
    Case(
        "transactional-id-acls",
        E,
        lambda: snapshot(lacking={"shop:big:0": Seen("Write")}),
        "Write is not allowed",
        "--transactional-id shop: --resource-pattern-type prefixed",
    ),
    Case(
        "transactional-id-acls",
        E,
        lambda: replace(
            with_worker(ids="leased"),
            lacking={"TX 7": Seen("Describe")},
            leases=Seen({"TX 7": TransactionalId("shop", "big", 0, "TX 7")}),
        ),
        "Describe is not allowed",
        "--operation Write --operation Describe --transactional-id 'TX 7'",
    ),
    Case(
        "settings-acls",
        W,
        lambda: with_topic("large", replace(topic(), values=None)),
        "DescribeConfigs is not allowed",
        "--operation DescribeConfigs --topic large",
    ),
]
