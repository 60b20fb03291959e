"""Images are chosen by a tag that is not moved on purpose, and by digest where it is known."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from eosframework.testing.containers import DEFAULT_IMAGES
from tests.support.servers.local_images import IMAGES
from tests.support.servers.pinned_images import DIGEST, FILES, OWN, external_images, pin
from tests.unit.deployment.files import COMPOSE_FILES, DOCKER, REPOSITORY, compose, pods

NOT_PINNED = {
    "apache/kafka:4.4.0",
    "grafana/grafana:12.0.0",
    "postgres:18",
    "prom/prometheus:v2.42.0",
    "python:3.11-slim",
}
"""Whose digest is not recorded yet. `make pin-images`, where a registry is reached, pins them; then
they leave this list."""

VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
FILES_OF_DOCKER = sorted(file for file in DOCKER.rglob("*") if file.is_file())
DOCKERFILES = [file for file in FILES_OF_DOCKER if "Dockerfile" in file.name]
A, B = (f"sha256:{letter * 64}" for letter in "ab")


def test_every_image_of_others_has_a_tag_and_all_but_those_named_a_digest() -> None:
    found = [image for file in FILES for image in external_images(file.read_text())]
    assert len(found) >= 5
    assert all(tag not in ("", "latest") for _, tag, _ in found), found
    assert {f"{name}:{tag}" for name, tag, digest in found if not digest} == NOT_PINNED


def test_servers_for_tests_have_tags() -> None:
    images = [*DEFAULT_IMAGES.values(), *(image.tag for image in IMAGES.values())]
    assert all(re.fullmatch(r"[a-z/]+:(?!latest)[\w.-]+", image) for image in images), images


@pytest.mark.parametrize("file", FILES_OF_DOCKER, ids=lambda file: str(file.relative_to(DOCKER)))
def test_no_file_says_latest(file: Path) -> None:
    text = file.read_text(encoding="utf-8", errors="replace")
    assert not re.search(r":latest\b|[tT]ag: *[\"']?latest", text)


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: str(file.relative_to(DOCKER)))
def test_a_dockerfile_begins_with_an_argument_or_a_digest(file: Path) -> None:
    text = file.read_text()
    arguments = {f"${{{name}}}" for name in re.findall(r"^ARG (\w+)=", text, re.MULTILINE)}
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases
    # What stands in is built on what stands in, which is never pulled.
    built_here = {IMAGES["python"].tag} if "local-images" in file.parts else set[str]()
    for base in bases:
        known = base in {"scratch"} | arguments | built_here
        assert known or re.search(rf":[\w.-]+{DIGEST}$", base), base


def test_compose_takes_every_image_from_the_same_place() -> None:
    chosen = {
        name: (tag, digest)
        for file in FILES[:1]
        for name, tag, digest in external_images(file.read_text())
    }
    for file in COMPOSE_FILES:
        for service in compose(file)["services"].values():
            default = re.fullmatch(r"\$\{\w+:-([^:]+):([^@]+)(@.*)?\}", service.get("image", ""))
            if default is None:
                assert "image" not in service
            elif default[1] != OWN:
                assert chosen[default[1]] == (default[2], default[3] or "")


def test_our_own_image_is_named_by_its_version() -> None:
    named = [
        *re.findall(r"EOSFRAMEWORK_IMAGE(?:=|:-)([^\s}]+)", "".join(f.read_text() for f in FILES)),
        *re.findall(r"EOSFRAMEWORK_IMAGE=(\S+)", (DOCKER / "flights.Dockerfile").read_text()),
        *re.findall(r"--tag (eosframework\S*)", (DOCKER / "Dockerfile").read_text()),
        *re.findall(
            r"--tag (eosframework\S*)", (REPOSITORY / "docs/howto/production.md").read_text()
        ),
    ]
    assert len(named) >= 5
    assert set(named) == {f"{OWN}:{VERSION}"}


def test_pods_run_the_image_that_the_kustomization_names_by_tag_or_digest() -> None:
    text = (DOCKER / "kubernetes" / "kustomization.yaml").read_text()
    chosen = {image["name"]: image for image in yaml.safe_load(text)["images"]}
    images = {container["image"] for _, pod in pods() for container in pod["containers"]}
    assert images == set(chosen)
    for image in chosen.values():
        assert image.get("digest", "").startswith("sha256:") or image["newTag"] != "latest"


def test_pinning_adds_a_digest_or_replaces_it_and_leaves_other_images_alone() -> None:
    text = "A_IMAGE=postgres:18\nB_IMAGE=my/postgres:18\nC_IMAGE=postgres:18.1\n"
    digests = {"postgres:18": A}
    once = pin(text, digests)
    assert once == text.replace("A_IMAGE=postgres:18", f"A_IMAGE=postgres:18@{A}")
    assert pin(once, digests) == once
    assert pin(once, {"postgres:18": B}) == once.replace(A, B)
    assert external_images(once)[0] == ("postgres", "18", f"@{A}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_can_be_pinned(file: Path) -> None:
    text = file.read_text()
    pinned = pin(text, dict.fromkeys(NOT_PINNED, A))
    assert pinned != text
    for name, tag, digest in external_images(pinned):
        assert digest, (name, tag)
    assert not re.findall(rf"(?:{'|'.join(map(re.escape, NOT_PINNED))})(?!@)", pinned)
