"""The jars of Kafka Streams, locked and kept alongside those of brokers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants.work import Unavailable
from eosframework.embedded.data_directory import exclusively
from eosframework.embedded.jars import (
    KAFKA_VERSION,
    cache_directory,
    damaged_jars,
    fetched,
    kafka_release,
    parse_lock,
)

VERSION = "4.4.0"
"""Of Kafka Streams and of its clients; the broker's may differ."""

STREAMS = f"org.apache.kafka:kafka-streams:{VERSION}"
HOME = f"kafka-streams-{VERSION}"
"""Its directory in the cache."""

LOCK = Path(__file__).with_name(f"kafka-streams-{VERSION}.lock")


def class_path() -> str:
    """Return the class path of a Kafka Streams program; fetch missing jars.

    The broker's jars come last, for their log binding: of two versions of a class, Java takes the
    one that comes first.

    Raises:
        Unavailable: a jar cannot be fetched or differs from the lock.
    """
    home = cache_directory() / HOME
    jars = home / "jars"
    locked = parse_lock(LOCK.read_text(encoding="ascii"))
    with exclusively(home, "jar cache", "set EOS_CACHE_DIR to a directory that can"):
        jars.mkdir(exist_ok=True)
        if missing := damaged_jars(jars, locked):
            _fetch(home / "repository", jars, missing)
        if damaged := damaged_jars(jars, locked):
            raise Unavailable(f"{', '.join(damaged)} in {jars} differ from the lock")
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
