"""An application that refuses one number in ten until it is fixed, and commands on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from tests.support.applications.pipeline import KEEP, Pipeline, WorkerProcess, number_in
from tests.support.processes.commands import here
from tests.support.processes.programs import FAULTY, Finished, fork_program
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import create_topics

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:refuse_threes"}]
    on_error: {dead_letter: NAME.letters, POLICY}
    to: [{topic: NAME.doubled, value: json}]
"""


class Forgiving:
    """The application, with numbers in its input.

    Args:
        pipeline: made from `TOPOLOGY`, with a policy in place of POLICY.
        count: how many numbers are fed.
        producers: of a worker: `worker.ids`.
    """

    def __init__(self, pipeline: Pipeline, count: int, producers: str = "worker") -> None:
        self.pipeline = pipeline
        self._producers = producers
        self.letters = f"{pipeline.name}.letters"
        self.numbers = range(count)
        self.refused = [n for n in self.numbers if n % 10 == 3]
        self._mended = pipeline.directory / "fixed"
        self._commands = 0
        admin = AdminClient({"bootstrap.servers": pipeline.bootstrap_servers})
        # Letters of each partition are replayed in a transaction of their own.
        create_topics(admin, [NewTopic(self.letters, 3, 1, config=KEEP)])
        applied = self.run("apply")
        assert applied.exit_code == 0, applied.err
        pipeline.feed(count)

    def fix(self) -> None:
        """Let the function refuse nothing from now on."""
        self._mended.touch()

    def worker(self, *, until_caught_up: bool = False, faults: Sequence[str] = ()) -> WorkerProcess:
        return self.pipeline.start_worker(
            until_caught_up=until_caught_up,
            faults=faults,
            settings=[
                "worker.receipts=true",
                "worker.session_timeout_seconds=6",
                f"worker.ids={self._producers}",
            ],
            environment={"EOS_TEST_MENDED": str(self._mended)},
        )

    def catch_up(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Let a worker read to the end."""
        worker = self.worker(until_caught_up=True)
        assert worker.wait(seconds) == 0, worker.log[-4000:]

    def start(self, *command: str, faults: Sequence[str] = ()) -> WorkerProcess:
        """Start a command on the application, with faults, as a process of its own."""
        self._commands += 1
        directory = self.pipeline.directory / f"command{self._commands}"
        directory.mkdir()
        log_file = directory / "log"
        process = fork_program(
            FAULTY,
            self._arguments(command),
            environment={
                "EOS_TEST_FAULTS": ";".join(faults),
                "EOS_TEST_FAULT_DIRECTORY": str(directory),
                "EOS_TEST_MENDED": str(self._mended),
            },
            out=directory / "out",
            err=log_file,
        )
        worker = WorkerProcess(process, log_file, directory)
        self.pipeline.workers.append(worker)
        return worker

    def run(self, *command: str, seconds: float = PATIENCE_SECONDS) -> Finished:
        """Run a command on the application to its end."""
        return self.start(*command).finish(seconds)

    def here(self, *command: str) -> Finished:
        """Run a command that starts no worker in this process."""
        return here(*self._arguments(command))

    def run_at(self, command: str, place: str, *options: str) -> Finished:
        """Run a command on one dead letter."""
        return self.here("dead-letters", command, place, *options)

    def _arguments(self, command: Sequence[str]) -> list[str]:
        words = 2 if command[0] == "dead-letters" else 1
        servers = f"kafka.bootstrap_servers={self.pipeline.bootstrap_servers}"
        application = str(self.pipeline.topology_file)
        return [
            *(*command[:words], application),
            *(*command[words:], "--set", servers),
        ]

    def read(self, topic: str) -> list[Message]:
        return self.pipeline.read(topic)

    @property
    def written(self) -> Counter[int]:
        """How often each number is in the output."""
        return Counter(number_in(message) for message in self.read(f"{self.pipeline.name}.doubled"))
