"""The machine and the versions that the figures belong to."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import confluent_kafka
import psutil

from benchmarks.contestants import quix, streams_jars
from eosframework.embedded.jars import KAFKA_VERSION, find_java, parse_java_version
from eosframework.embedded.postgres_programs import MAJOR_VERSION


@cache
def describe_machine() -> dict[str, Any]:
    """Cores, memory and the versions that every benchmark uses."""
    answer = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=True)
    return {
        "cores": psutil.cpu_count(),
        "processor": _processor(),
        "memory_gibibytes": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": parse_java_version(answer.stderr + answer.stdout),
        "kafka": KAFKA_VERSION,
        "eosframework": version("eosframework"),
        "confluent_kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
        "orjson": version("orjson"),
    }


def describe_contestants(text: str) -> dict[str, str]:
    """Return the versions of the programs of others that `text` names, by their names."""
    versions = {
        "Kafka Streams": lambda: streams_jars.VERSION,
        "Quix Streams": quix.locked_version,
        "Spark": lambda: version("pyspark"),
        "PostgreSQL": lambda: str(MAJOR_VERSION),
    }
    return {name: find() for name, find in versions.items() if name in text}


def machine_line(contestants: Mapping[str, str]) -> str:
    """The machine in one line, with the versions of others that took part."""
    found = describe_machine()
    return (
        f"{found['cores']} cores, {found['memory_gibibytes']} GiB, Python {found['python']}, "
        f"Java {found['java']}, Kafka {found['kafka']}, librdkafka {found['librdkafka']}"
        f"{''.join(f', {name} {version}' for name, version in contestants.items())}; "
        f"the broker runs on the same cores"
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
