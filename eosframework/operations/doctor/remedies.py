"""Commands of Kafka's own tools and configuration lines that fix a finding."""

from __future__ import annotations

from eosframework.operations.doctor.snapshot import Snapshot

IN_PROPERTIES = "in every broker's server.properties; restart one after the other"


def alter_topic(snapshot: Snapshot, topic: str, setting: str, value: object) -> str:
    """Return the command that changes a topic's setting."""
    return (
        f"kafka-configs.sh --bootstrap-server {snapshot.servers} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {setting}={value}"
    )


def alter_brokers(snapshot: Snapshot, setting: str, value: object) -> str:
    """Return the command that changes a dynamic setting of all brokers."""
    return (
        f"kafka-configs.sh --bootstrap-server {snapshot.servers} --alter --entity-type brokers "
        f"--entity-default --add-config {setting}={value}"
    )


def restart_with(setting: str, value: object) -> str:
    """Return the change of a setting that brokers read at their start."""
    return f"{setting}={value} {IN_PROPERTIES}"


def add_replicas(snapshot: Snapshot, topic: str, wanted: int) -> str:
    """Return the command that adds replicas to a topic."""
    return (
        f"kafka-reassign-partitions.sh --bootstrap-server {snapshot.servers} --execute "
        f"--reassignment-json-file FILE, with {wanted} brokers for each partition of {topic}"
    )


def grant(snapshot: Snapshot, resource: str, operations: str) -> str:
    """Return the command that grants permissions.

    Args:
        snapshot: names the cluster.
        resource: option of the tool: `--topic orders`.
        operations: joined by " and ".
    """
    options = " ".join(f"--operation {name}" for name in operations.split(" and "))
    return (
        f"kafka-acls.sh --bootstrap-server {snapshot.servers} --add --allow-principal "
        f"User:WORKER {options} {resource}"
    )
