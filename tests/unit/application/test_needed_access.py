"""Needed ACLs, and errors about missing ones."""

from __future__ import annotations

import pytest

from eosframework.application.needed_access import (
    Access,
    merged,
    naming_needed_access,
    refuse_denied,
    relay_access,
    worker_access,
)
from eosframework.config import Settings
from eosframework.errors import StartRefused
from eosframework.kafka.admin.requests import AccessDenied
from eosframework.topology.loader import read_yaml
from eosframework.topology.resolve.resolve import resolve

TOPIC = Access("Topic", "orders", ("Read", "Write", "Describe"))


def test_describe_is_not_granted_where_another_operation_includes_it() -> None:
    assert TOPIC.granted == ("Read", "Write")
    assert Access("Group", "shop", ("Describe",)).granted == ("Describe",)
    assert Access("Cluster", None, ("DescribeConfigs",)).granted == ("DescribeConfigs",)


def test_a_resource_that_is_needed_twice_is_listed_once() -> None:
    again = Access("Topic", "orders", ("Read", "Delete"))
    assert [str(one) for one in merged([TOPIC, again])] == ["Topic orders: Read, Write, Delete"]


def test_commands_are_quoted_for_a_shell() -> None:
    access = Access("TransactionalId", "shop:", ("Write", "Describe"), is_prefix=True)
    assert access.command("one:9092", "User:CN=my shop") == (
        "kafka-acls.sh --bootstrap-server one:9092 --add --allow-principal 'User:CN=my shop' "
        "--operation Write --transactional-id shop: --resource-pattern-type prefixed"
    )
    cluster = Access("Cluster", None, ("DescribeConfigs",))
    assert cluster.command("one:9092", "User:a").endswith("--operation DescribeConfigs --cluster")


def test_what_brokers_do_not_say_is_not_refused() -> None:
    refuse_denied([TOPIC], {("Topic", "orders"): None})
    with pytest.raises(StartRefused, match="grant Write on Topic orders"):
        refuse_denied([TOPIC], {("Topic", "orders"): frozenset({"Read", "Describe"})})


def test_a_resource_that_may_not_be_described_is_told_with_what_is_needed_of_it() -> None:
    with (
        pytest.raises(StartRefused, match="grant Read and Write on Topic orders"),
        naming_needed_access([TOPIC]),
    ):
        raise AccessDenied("denied", "topic", "orders")
    with pytest.raises(AccessDenied, match="denied"), naming_needed_access([TOPIC]):
        raise AccessDenied("denied", "topic", "others")


def test_a_relay_that_takes_verification_for_granted_needs_nothing_of_the_cluster() -> None:
    assumed = Settings.model_validate({"kafka": {"assume_transaction_verification": True}})
    assert [str(one) for one in relay_access(assumed, ["b", "a", "b"])] == [
        "Topic a: Write",
        "Topic b: Write",
        "Topic outbox-control: Read, Write",
        "TransactionalId outbox:* (prefixed): Write",
    ]


def test_topics_and_groups_are_granted_by_their_names_and_only_ids_by_a_prefix() -> None:
    text = """
application: shop-eu
sources: {orders: {topic: orders, key: string, value: json}}
streams:
  totals:
    from: orders
    steps: [{group_by: {by: "builtins:str", key: string}}, count: {}]
    on_error: {dead_letter: dead, retry: 10s}
    to: [totals, {table: totals}]
"""
    graph = resolve(read_yaml(text, "app.yaml"))
    needed = worker_access(graph, Settings(), ["orders"], ["dead", "totals"])
    assert {(one.kind, one.name) for one in needed if one.is_prefix} == {
        ("TransactionalId", "shop-eu:")
    }
    names = {one.name for one in needed if not one.is_prefix and one.kind != "Cluster"}
    assert names >= {
        "orders",
        "totals",
        "shop-eu",
        "shop-eu:tables",
        "shop-eu-control",
        "shop-eu-totals-repartition",
        "shop-eu-totals.count-changelog",
        "shop-eu-totals-rows",
    }
