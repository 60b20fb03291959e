"""`docker` and `docker compose` as pages write them, with what this machine needs besides.

Debian has Compose as a program of its own, `docker-compose`, and a build needs the certificates
that the machine trusts besides the usual ones.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import uuid
from pathlib import Path

from eosframework.embedded.data_directory import free_ports
from tests.support.servers.debian_packages import require_programs
from tests.support.servers.local_images import IMAGES

_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_PORTS = ("KAFKA_PORT", "POSTGRES_PORT", "PROMETHEUS_PORT", "GRAFANA_PORT")


def docker_environment(host: str, directory: Path) -> dict[str, str]:
    """Environment of a terminal in which `docker` and `docker compose` do what pages say.

    Args:
        host: of the engine.
        directory: for the programs that are put before those of the path; exists.
    """
    docker = shutil.which("docker")
    assert docker is not None
    _write_program(directory / "docker", _docker_script(docker))
    ports = map(str, free_ports(len(_PORTS)))
    # What stands in for an official image has its tag, and never its digest.
    images = {f"{name.upper()}_IMAGE": image.tag for name, image in IMAGES.items()}
    own = images | {
        "DOCKER_HOST": host,
        "DOCKER_BUILDKIT": "0",
        "COMPOSE_PROJECT_NAME": f"eos{uuid.uuid4().hex[:8]}",
        "PATH": f"{directory}:{os.environ['PATH']}",
    }
    return os.environ | own | dict(zip(_PORTS, ports, strict=True))


def _docker_script(docker: str) -> str:
    has_plugin = subprocess.run([docker, "compose", "version"], capture_output=True, check=False)
    compose = f"{docker} compose"
    if has_plugin.returncode != 0:
        require_programs({"docker-compose": "docker-compose"})
        compose = "docker-compose"
    building = shlex.join(["--network=host", *_build_arguments()])
    # An engine of the tests removes layers without a tag: with one, packages are installed once.
    layers = f"{docker} build {building} --target build --tag eosframework:layers"
    return f"""\
#!/bin/sh
case "$1" in
    build)
        shift
        case "$*" in *docker/Dockerfile*) {layers} "$@" > /dev/null 2>&1 ;; esac
        exec {docker} build {building} "$@" ;;
    compose) shift; exec {compose} "$@" ;;
    *) exec {docker} "$@" ;;
esac
"""


def _build_arguments() -> list[str]:
    found = [f"PIP_INDEX_URL={url}" for name in ("PIP_INDEX_URL",) if (url := os.environ.get(name))]
    found.append(f"BASE_IMAGE={IMAGES['python'].tag}")
    if certificates := "".join(f.read_text() for f in sorted(_CERTIFICATES.glob("*.crt"))):
        found.append(f"CERTIFICATES={certificates}")
    return [f"--build-arg={argument}" for argument in found]


def _write_program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)
