"""`plan` and `apply` create outputs with the partitions and settings that the topology states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.conftest import KafkaService
from tests.support.processes.commands import here
from tests.support.servers.kafka_admin import ConfigResource

TOPOLOGY = """\
application: NAME
sources:
  orders: {topic: NAME.orders, value: json}
streams:
  paid:
    from: orders
    to:
      - {topic: NAME.paid, partitions: 3, retention: 7d}
      - {topic: NAME.latest, settings: {cleanup.policy: compact}}
"""


def settings_of(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    [found] = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in found.result(60).items()}


def test_outputs_are_created_as_stated_and_never_changed(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name, server = unique_name("stated"), ["--bootstrap-server", kafka.bootstrap_servers]
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY.replace("NAME", name))
    assert here("topics", "create", f"{name}.orders", *server).exit_code == 0
    planned = here("plan", str(file), *server)
    line = next(row for row in planned.out.splitlines() if f"{name}.paid " in row)
    assert "to create, partitions 3" in line
    assert line.endswith(", retention.ms=604800000")
    applied = here("apply", str(file), *server)
    assert applied.exit_code == 0, applied.err

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topics = admin.list_topics(timeout=60).topics
    assert {t: len(topics[f"{name}.{t}"].partitions) for t in ("paid", "latest")} == {
        "paid": 3,
        "latest": 4,
    }
    assert settings_of(admin, f"{name}.paid")["retention.ms"] == "604800000"
    assert settings_of(admin, f"{name}.latest")["cleanup.policy"] == "compact"

    file.write_text(file.read_text().replace("partitions: 3", "partitions: 5"))
    notes = here("plan", str(file), "--json", *server).json["notes"]
    assert [note for note in notes if f"topic {name}.paid has 3 partitions" in note]


def test_a_setting_that_the_broker_refuses_is_named(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name, server = unique_name("stated"), ["--bootstrap-server", kafka.bootstrap_servers]
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY.replace("NAME", name).replace("cleanup.policy", "no.such"))
    assert here("topics", "create", f"{name}.orders", *server).exit_code == 0
    refused = here("apply", str(file), *server)
    assert refused.exit_code == 2
    assert f"{name}.latest" in refused.error
    assert "no.such" in refused.error
