from __future__ import annotations

from pathlib import Path

import pytest

from eosframework.embedded.kafka_cluster import (
    Layout,
    load_layout,
    new_cluster_id,
    save_layout,
    server_properties,
)
from eosframework.errors import ConfigurationError

ONE = Layout(cluster_id="a", ports=(9092,), controller_ports=(19092,))
THREE = Layout(cluster_id="a", ports=(9092, 9093, 9094), controller_ports=(19092, 19093, 19094))


def test_a_recorded_cluster_is_read_back(tmp_path: Path) -> None:
    save_layout(tmp_path, THREE)

    assert load_layout(tmp_path) == THREE


def test_a_directory_without_a_cluster_has_no_layout(tmp_path: Path) -> None:
    assert load_layout(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"ports": 1}'])
def test_a_damaged_record_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)

    with pytest.raises(ConfigurationError, match=r"cluster\.json does not describe a cluster"):
        load_layout(tmp_path)


def test_three_nodes_replicate_what_transactions_need(tmp_path: Path) -> None:
    properties = server_properties(THREE, tmp_path, 2)

    assert properties["transaction.state.log.replication.factor"] == "3"
    assert properties["transaction.state.log.min.isr"] == "2"
    assert properties["listeners"].startswith("PLAINTEXT://127.0.0.1:9093,")
    assert properties["controller.quorum.voters"].count("@") == 3


def test_placeholders_stand_for_the_node(tmp_path: Path) -> None:
    layout = Layout(
        cluster_id="a",
        ports=(9092,),
        controller_ports=(19092,),
        properties={
            "advertised.listeners": "PLAINTEXT://localhost:{port}",
            "broker.rack": "r{node_id}",
        },
    )

    properties = server_properties(layout, tmp_path, 1)

    assert properties["advertised.listeners"] == "PLAINTEXT://localhost:9092"
    assert properties["broker.rack"] == "r1"


@pytest.mark.parametrize("name", ["node.id", "log.dirs", "process.roles"])
def test_what_the_layout_decides_cannot_be_set(tmp_path: Path, name: str) -> None:
    layout = Layout(
        cluster_id="a", ports=(9092,), controller_ports=(19092,), properties={name: "7"}
    )

    with pytest.raises(ConfigurationError, match=f"{name}='7' is decided by the embedded"):
        server_properties(layout, tmp_path, 1)


def test_cluster_ids_have_the_form_that_kafka_takes() -> None:
    assert len(new_cluster_id()) == 22
    assert new_cluster_id() != new_cluster_id()
