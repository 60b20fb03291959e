"""The jars of Kafka Streams that the broker does not bring, locked and kept beside its own."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants.work import Unavailable
from eosframework.embedded.jars import (
    KAFKA_VERSION,
    cache_directory,
    damaged_jars,
    fetched,
    kafka_release,
    parse_lock,
)

STREAMS = f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}"
_LOCK = Path(__file__).with_name(f"kafka-streams-{KAFKA_VERSION}.lock")


def class_path() -> str:
    """Give the class path of a Kafka Streams program; fetch what is missing.

    Raises:
        Unavailable: a jar cannot be fetched or is not what the lock says.
    """
    home = cache_directory() / f"kafka-streams-{KAFKA_VERSION}"
    jars = home / "jars"
    jars.mkdir(parents=True, exist_ok=True)
    locked = parse_lock(_LOCK.read_text(encoding="ascii"))
    if missing := damaged_jars(jars, locked):
        _fetch(home / "repository", jars, missing)
        if damaged := damaged_jars(jars, locked):
            raise Unavailable(f"{', '.join(damaged)} in {jars} is not what the lock says")
    return f"{jars}/*:{fetched(kafka_release(KAFKA_VERSION))}/*"


def _fetch(repository: Path, jars: Path, names: list[str]) -> None:
    from jgo.maven import MavenContext, PythonResolver

    maven = MavenContext(resolver=PythonResolver(), repo_cache=repository, timeout=60)
    try:
        roots, dependencies = maven.resolver.resolve([maven.create_dependency(STREAMS)])
        for dependency in (*roots, *dependencies):
            artifact = dependency.artifact
            if artifact.filename in names:
                artifact.resolve().replace(jars / artifact.filename)
    except Exception as error:
        raise Unavailable(f"the jars of {STREAMS} could not be fetched: {error}") from error
