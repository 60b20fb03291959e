"""What is promised of the images that the container tests use, be they official or stand in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import psycopg
import pytest
from docker.models.containers import Container

from eosframework.embedded.jars import KAFKA_VERSION
from eosframework.postgres.database.scratch import answers
from tests.support.applications.pipeline import wait_until
from tests.support.servers.engine import Engine
from tests.support.servers.local_images import IMAGES, MADE_OF

pytestmark = pytest.mark.timeout(2400)
"""The first test that needs an image has it pulled or built."""

QUICK = {"KAFKA_HEAP_OPTS": "-Xmx256m", "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:TieredStopAtLevel=1"}

NeedImages = Callable[[Sequence[str]], None]
Run = Callable[..., Container]


@pytest.fixture
def run(container_engine: Engine) -> Iterator[Run]:
    """Run a container of an image by its name; it is removed after the test."""
    with closing(docker.DockerClient(container_engine.host)) as client:
        started: list[Container] = []

        def start(name: str, **options: Any) -> Container:
            started.append(client.containers.run(IMAGES[name].tag, detach=True, **options))
            return started[-1]

        yield start
        for container in started:
            container.remove(force=True, v=True)


def port_of(container: Container, port: int) -> int:
    def published() -> bool:
        container.reload()
        return bool(container.ports.get(f"{port}/tcp"))

    wait_until(published, f"port {port} of {container.name}")
    places = container.ports[f"{port}/tcp"]
    assert places is not None
    return int(places[0]["HostPort"])


def serves(container: Container, dsn: str) -> bool:
    container.reload()
    assert container.status == "running", container.logs().decode()
    return answers(dsn)


@pytest.mark.exhaustive
def test_python_and_pip_run_under_their_official_names(need_images: NeedImages, run: Run) -> None:
    need_images(["python"])
    script = "python --version && pip list"
    container = run("python", command=["sh", "-c", script])
    assert container.wait(timeout=900)["StatusCode"] == 0, container.logs()
    assert container.logs().startswith(b"Python 3.11.")


@pytest.mark.slow
def test_kafka_without_variables_serves_and_stops_in_order(
    need_images: NeedImages, run: Run
) -> None:
    need_images(["kafka"])
    container = run("kafka", environment=QUICK)
    wait_until(lambda: b"Kafka Server started" in container.logs(), "a broker", 900)
    assert f"Kafka version: {KAFKA_VERSION}".encode() in container.logs()
    container.stop(timeout=60)
    assert container.wait()["StatusCode"] in (0, 143)


@pytest.mark.exhaustive
def test_postgres_makes_what_its_variables_and_scripts_say_once(
    need_images: NeedImages, run: Run, tmp_path: Path
) -> None:
    need_images(["postgres"])
    (tmp_path / "1.sql").write_text("CREATE TABLE mine AS SELECT 1 AS n;")
    (tmp_path / "2.sh").write_text('psql -U "$POSTGRES_USER" -d "$POSTGRES_DB" -c "TABLE mine"')
    tmp_path.chmod(0o755)
    container = run(
        "postgres",
        command=["-c", "wal_level=logical"],
        environment={"POSTGRES_USER": "me", "POSTGRES_PASSWORD": "s'ecret", "POSTGRES_DB": "own"},
        ports={"5432/tcp": None},
        volumes={str(tmp_path): {"bind": "/docker-entrypoint-initdb.d", "mode": "ro"}},
    )
    for _ in range(2):
        dsn = f"postgresql://me:s'ecret@127.0.0.1:{port_of(container, 5432)}/own"
        wait_until(lambda dsn=dsn: serves(container, dsn), "a server", 900)
        with psycopg.connect(dsn) as connection:
            assert connection.execute("TABLE mine").fetchall() == [(1,)]
            assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
        container.restart(timeout=60)


@pytest.mark.exhaustive
def test_postgres_without_a_password_is_refused(need_images: NeedImages, run: Run) -> None:
    need_images(["postgres"])
    container = run("postgres")
    assert container.wait(timeout=900)["StatusCode"] == 1
    assert b"POSTGRES_PASSWORD" in container.logs()


@pytest.mark.exhaustive
def test_what_stands_in_says_so(need_images: NeedImages, container_engine: Engine) -> None:
    need_images(list(IMAGES))
    with closing(docker.DockerClient(container_engine.host)) as client:
        for image in IMAGES.values():
            found = client.images.get(image.tag)
            official = bool(found.attrs.get("RepoDigests"))
            assert official is (MADE_OF not in found.labels), image.tag
