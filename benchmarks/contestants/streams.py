"""Kafka Streams with one thread: the program in benchmarks/java."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from benchmarks.contestants.streams_jars import HOME, VERSION, class_path
from benchmarks.contestants.work import Unavailable, Work
from benchmarks.processes import Command
from eosframework.embedded.jars import cache_directory, find_java

PROGRAMS = Path(__file__).parents[1] / "java"
MAIN = "Contestant"


class KafkaStreams:
    """Kafka Streams on the Java that runs the broker; javac compiles the program.

    Args:
        name: what it goes by in tables.
        environment: variables on top of the work's.
    """

    share = 1.0

    def __init__(
        self,
        name: str = "Kafka Streams",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._environment = dict(environment or {})

    def prepare(self) -> str:
        compile_programs(_classes(), *PROGRAMS.glob("*.java"))
        return f"{VERSION}, 1 thread"

    def command(self, work: Work) -> Command:
        arguments = [
            *(str(find_java()), "-Xmx1g", "-XX:+UseG1GC", "-XX:-UsePerfData"),
            *("-cp", f"{_classes()}:{class_path()}", MAIN),
        ]
        state = {"BENCH_STATE_DIRECTORY": str(work.directory / "streams")}
        return Command(arguments, work.environment() | state | self._environment)


def compile_programs(classes: Path, *sources: Path) -> None:
    """Compile programs of Kafka Streams with the compiler of the Java that runs the broker.

    Args:
        classes: directory of the compiled classes.
        sources: files.

    Raises:
        Unavailable: there is no compiler, or it refuses them.
    """
    java = find_java()
    beside = java.resolve().with_name("javac")
    compiler = str(beside) if beside.exists() else shutil.which("javac")
    if compiler is None:
        raise Unavailable(f"there is no Java compiler beside {java} or in PATH")
    done = subprocess.run(
        [compiler, "-cp", class_path(), "-d", classes, *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        names = ", ".join(source.name for source in sources)
        raise Unavailable(f"{names} do not compile: {done.stderr.strip()}")


def _classes() -> Path:
    directory = cache_directory() / HOME / "classes"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
