"""An engine of our own is there for all who use it, and ends with the last of them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import docker

from tests.support.processes.programs import REPOSITORY
from tests.support.servers.engine import Engine

ANOTHER = """
from tests.support.servers.engine import container_engine

with container_engine() as engine:
    print(engine.host)
"""


def test_who_goes_first_leaves_the_engine_to_the_others(container_engine: Engine) -> None:
    another = subprocess.run(
        [sys.executable, "-c", ANOTHER],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert another.stdout.strip() == container_engine.host
    with closing(docker.DockerClient(container_engine.host)) as client:
        assert client.ping()
