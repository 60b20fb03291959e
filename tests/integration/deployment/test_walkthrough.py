"""docs/howto/production.md, followed word for word on a real engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.applications.pipeline import wait_until
from tests.support.processes.programs import REPOSITORY
from tests.support.processes.terminal import Terminal, blocks, terminal
from tests.support.servers.composed import docker_environment
from tests.support.servers.engine import Engine

IMAGE = "eosframework:0.1.0"
PAGE = REPOSITORY / "docs" / "howto" / "production.md"


@pytest.fixture
def shell(
    container_engine: Engine, need_images: Callable[[Sequence[str]], None], tmp_path: Path
) -> Iterator[Terminal]:
    need_images(["python", "kafka", "postgres", "prometheus"])
    programs = tmp_path / "programs"
    programs.mkdir()
    environment = docker_environment(container_engine.host, programs)
    with terminal(REPOSITORY, tmp_path / "terminal", environment) as opened:
        yield opened
    with terminal(REPOSITORY, tmp_path / "terminal", environment) as cleaning:
        cleaning.run("docker compose --file docker/compose.yaml down --volumes --timeout 1")


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_rehearsal_runs_as_it_is_written(shell: Terminal) -> None:
    printed: dict[str, str] = {}
    for block in blocks(PAGE):
        if "docker compose stop" in block:
            inspect(shell)
        printed[block] = shell.run(block)
    stopped = next(out for block, out in printed.items() if "docker compose stop" in block)
    assert stopped.count(f"{IMAGE}: 0\n") == 2, stopped
    verdict = next(out for block, out in printed.items() if "verdict()" in block)
    assert verdict.endswith("0|0\n")


def inspect(shell: Terminal) -> None:
    """What the page promises of the image, while workers run."""
    for service in ("worker", "relay"):
        container = shell.run(f"docker compose ps --quiet {service}").strip()
        health = f"docker inspect --format '{{{{.State.Health.Status}}}}' {container}"
        wait_until(lambda h=health: shell.run(h) == "healthy\n", f"health of {service}", 600)
        assert shell.run(f"docker exec {container} id -u") == "10001\n"
        # PID 1 is the program itself, with no shell between it and whoever asks it to stop.
        first = shell.run(f"docker exec {container} cat /proc/1/cmdline")
        assert "eosframework" in first
        assert "sh -c" not in first
    started = shell.run("docker compose logs --no-color worker").count("http_serving")
    assert started >= 4, "two processes, started twice: the worker was killed in between"
    layers = shell.run("docker history --no-trunc " + IMAGE)
    assert "BEGIN CERTIFICATE" not in layers
