"""What docker/ says, as data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
DOCKER = REPOSITORY / "docker"
COMPOSE_FILES = sorted(DOCKER.glob("compose*.yaml"))


def compose(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def kubernetes_objects() -> list[dict[str, Any]]:
    files = sorted((DOCKER / "kubernetes").glob("*.yaml"))
    objects = [o for f in files for o in yaml.safe_load_all(f.read_text(encoding="utf-8"))]
    return [found for found in objects if found["kind"] != "Kustomization"]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """By the name of what makes them, the specs of pods."""
    for found in kubernetes_objects():
        if "template" in found.get("spec", {}):
            yield found["metadata"]["name"], found["spec"]["template"]["spec"]


def command_lines() -> Iterator[list[str]]:
    """What containers call eosframework with."""
    for _, pod in pods():
        yield from (container["args"] for container in pod["containers"])
    for file in COMPOSE_FILES:
        for service in compose(file)["services"].values():
            if "eosframework" in service.get("image", "") and "entrypoint" not in service:
                yield service["command"]
    for file in (DOCKER / "Dockerfile", DOCKER / "flights.Dockerfile"):
        yield from map(json.loads, re.findall(r"^CMD (\[.*\])$", file.read_text(), re.MULTILINE))


def variables() -> set[str]:
    """Every EOS_ variable of a setting that a file names."""
    files = [file for file in DOCKER.rglob("*") if file.is_file()]
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return {name for text in texts for name in re.findall(r"\bEOS_[A-Z]+__[A-Z_]+", text)}


def dashboard() -> dict[str, Any]:
    file = DOCKER / "grafana" / "dashboards" / "eosframework.json"
    return json.loads(file.read_text(encoding="utf-8"))


def queries() -> list[tuple[str, str]]:
    """The title of each panel of the dashboard, with each of its queries."""
    return [
        (panel["title"], target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
