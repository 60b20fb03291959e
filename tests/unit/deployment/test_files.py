"""What docker/ says fits what the program understands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from eosframework.cli import _register, app
from eosframework.config import Settings, load_settings
from tests.unit.deployment.files import COMPOSE_FILES, DOCKER, command_lines, compose, variables

OURS = "${EOSFRAMEWORK_IMAGE:-eosframework:0.1.0}"


def test_every_variable_that_is_set_is_a_setting() -> None:
    known = {
        f"EOS_{section}__{name}".upper()
        for section, field in Settings.model_fields.items()
        for name in getattr(field.annotation, "model_fields", {})
    }
    assert len(variables()) >= 5
    assert variables() <= known


@pytest.mark.parametrize("line", list(command_lines()), ids=" ".join)
def test_every_command_line_is_understood(line: list[str]) -> None:
    _register([])
    commands: Any = typer.main.get_command(app)
    if line == ["--help"]:
        return
    command = commands.commands[line[0]]
    # Parsing alone: nothing is run.
    context = command.make_context(line[0], list(line[1:]), resilient_parsing=False)
    assert context.params


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.name)
def test_every_image_of_compose_is_an_official_one_that_can_be_replaced(file: Path) -> None:
    defaults = dict(
        line.split("=", 1)
        for line in (DOCKER / ".env").read_text().splitlines()
        if line and not line.startswith("#")
    )
    images = {s["image"] for s in compose(file)["services"].values() if "image" in s}
    for image in images:
        found = re.fullmatch(r"\$\{([A-Z_]+):-([^}]+)\}", image)
        assert found, image
        assert defaults[found[1]] == found[2]


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.name)
def test_compose_listens_on_this_machine_only(file: Path) -> None:
    ports = [p for s in compose(file)["services"].values() for p in s.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_whoever_is_asked_to_stop_is_given_the_time() -> None:
    stopping = Settings().worker.stop_deadline_seconds + 10
    services = compose(DOCKER / "compose.yaml")["services"]
    ours = [service for service in services.values() if service["image"] == OURS]
    assert len(ours) == 4
    assert all(int(s["stop_grace_period"].rstrip("s")) > stopping for s in ours)


def test_three_nodes_survive_the_loss_of_one() -> None:
    services = compose(DOCKER / "compose.three-nodes.yaml")["services"]
    brokers = [services[f"kafka-{n}"]["environment"] for n in (1, 2, 3)]
    for broker in brokers:
        assert broker["KAFKA_CONTROLLER_QUORUM_VOTERS"].count("@") == 3
        for name in ("DEFAULT", "OFFSETS_TOPIC", "TRANSACTION_STATE_LOG"):
            assert broker[f"KAFKA_{name}_REPLICATION_FACTOR"] == 3
        assert broker["KAFKA_MIN_INSYNC_REPLICAS"] == 2
        assert broker["KAFKA_TRANSACTION_STATE_LOG_MIN_ISR"] == 2


def test_the_settings_of_the_config_map_are_settings(tmp_path: Path) -> None:
    [config_map] = yaml.safe_load_all((DOCKER / "kubernetes" / "settings.yaml").read_text())
    file = tmp_path / "settings.yaml"
    file.write_text(config_map["data"]["settings.yaml"])
    settings = load_settings(file)
    assert settings.worker.leave_on_stop is False


def test_no_file_names_a_package_registry() -> None:
    text = "".join(f.read_text(errors="replace") for f in DOCKER.glob("*") if f.is_file())
    assert not re.search(r"https?://(?!127\.0\.0\.1|localhost|prometheus:)", text)
