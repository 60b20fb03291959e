"""Images of docker/ by digest: a tag can be moved to another image, a digest cannot.

`python -m tests.support.servers.pinned_images` asks the registry, through the Docker engine that
answers, which image each tag names today, and writes `NAME:TAG@sha256:…` into the files of docker/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import docker
from docker.errors import DockerException

DOCKER = Path(__file__).parents[3] / "docker"
FILES = (DOCKER / ".env", DOCKER / "Dockerfile", *sorted(DOCKER.glob("compose*.yaml")))
"""The files that choose images of others."""

OWN = "eosframework"
DIGEST = r"@sha256:[0-9a-f]{64}"
_CHOSEN = re.compile(
    rf"^(?:ARG )?\w+_IMAGE=([a-z0-9./-]+)(?::([\w.-]+))?({DIGEST})?$", re.MULTILINE
)


def external_images(text: str) -> list[tuple[str, str, str]]:
    """Return name, tag and digest of each image of others that a file chooses; "" where missing.

    Args:
        text: of docker/.env or a Dockerfile.
    """
    chosen = [(name, tag, digest) for name, tag, digest in _CHOSEN.findall(text) if name != OWN]
    return list(dict.fromkeys(chosen))


def pin(text: str, digests: dict[str, str]) -> str:
    """Return the text of a file with each image by its digest.

    Args:
        text: may have digests already; they are replaced.
        digests: `sha256:…` by `NAME:TAG`.
    """
    for image, digest in digests.items():
        text = re.sub(
            rf"(?<![\w./])(?<!\w-){re.escape(image)}(?![\w.-])({DIGEST})?",
            f"{image}@{digest}",
            text,
        )
    return text


def pin_all(digest_of: Callable[[str], str]) -> list[str]:
    """Write the digests into the files of docker/; return the images.

    Args:
        digest_of: takes `NAME:TAG`, gives `sha256:…`.
    """
    texts = {file: file.read_text(encoding="utf-8") for file in FILES}
    images = {f"{name}:{tag}" for text in texts.values() for name, tag, _ in external_images(text)}
    # All are looked up before the first file is written.
    digests = {image: digest_of(image) for image in sorted(images)}
    for file, text in texts.items():
        file.write_text(pin(text, digests), encoding="utf-8")
    return [f"{image}@{digest}" for image, digest in digests.items()]


def main() -> None:
    """Pin the images of docker/ to what their tags name in the registry."""
    try:
        with closing(docker.from_env()) as client:
            pinned = pin_all(lambda image: client.images.get_registry_data(image).id)
    except DockerException as error:
        sys.exit(f"no digest was looked up, and no file was changed: {error}")
    print("\n".join(pinned))


if __name__ == "__main__":
    main()
