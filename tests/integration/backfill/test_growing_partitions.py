"""The page about topics that grow, followed word for word with names of this test's own."""

from __future__ import annotations

import re
import signal
import subprocess
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from eosframework.embedded.jars import find_spark_java
from eosframework.errors import EosError
from tests.conftest import KafkaService
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import read_committed, wait_until
from tests.support.processes.commands import Cluster, Folder
from tests.support.processes.programs import REPOSITORY
from tests.support.processes.waiting import PATIENCE_SECONDS
from tests.support.servers.kafka_admin import NewPartitions

PAGE = REPOSITORY / "docs" / "howto" / "growing-partitions.md"


class Shop:
    """The applications of the page, under names that no other test has.

    Args:
        folder: where the user's files are.
        name: that stands for `shop`.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self._folder = folder
        self._servers = folder.bootstrap_servers or ""
        self._cluster = Cluster(self._servers)
        page = PAGE.read_text(encoding="utf-8").replace("shop", name)
        self.quoted = re.findall(r"^    (\S.*)$", page, re.MULTILINE)[0]
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        files = [text for kind, text in blocks if kind]
        for file, text in zip((f"{name}.yaml", f"{name}2.yaml", f"{name}.py"), files, strict=True):
            folder.write(file, text)
        commands = [text.strip().splitlines() for kind, text in blocks if not kind]
        self.fill, [self.catch_up], self.grow = commands
        self._log = folder.path / "log"
        self._running: list[subprocess.Popen[bytes]] = []
        self._fed = 0
        self._cluster.create(f"{name}.orders", f"{name}.totals", partitions=2)

    def order(self, count: int) -> None:
        """Let producers send orders, of twenty customers, as Kafka's own clients place them."""
        producer = feeder(self._servers, partitioner="murmur2_random")
        for number in range(self._fed, self._fed + count):
            producer.produce(f"{self.name}.orders", b"{}", b"c%d" % (number % 20))
        assert producer.flush(60) == 0
        self._fed += count

    def run(self, command: str) -> None:
        """Run a line of the page to its end."""
        program, *words = command.split()
        if program == "kafka-topics":
            self._cluster.admin.create_partitions(
                [NewPartitions(words[words.index("--topic") + 1], int(words[-1]))]
            )[f"{self.name}.orders"].result(60)
            return
        process = self.start(command)
        assert process.wait(600) == 0, self._said()

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a line of the page that goes on."""
        program, *words = command.split()
        assert program == "eosframework"
        self._running.append(self._folder.start(*words, log=self._log))
        return self._running[-1]

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def totals(self, application: str) -> dict[str, list[int]]:
        """What an application says of each customer, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for message in read_committed(self._servers, f"{application}.totals"):
            count = int.from_bytes(message.value() or b"", "big")
            found[(message.key() or b"").decode()].append(count)
        return found

    def orders(self) -> Counter[str]:
        """How many orders each customer has sent."""
        sent = read_committed(self._servers, f"{self.name}.orders")
        return Counter((message.key() or b"").decode() for message in sent)

    def wait_for_totals(self, application: str) -> None:
        """Wait until an application has counted every order."""
        wait_until(
            lambda: sum(map(len, self.totals(application).values())) >= self._fed,
            f"{self._fed} totals of {application}",
            seconds=600,
        )

    def refusal(self) -> str:
        """Why the first application does not start."""
        return self._folder.run("run-worker", f"{self.name}.yaml", "--until-caught-up").error

    def stop(self) -> None:
        """End what still runs."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()


def ended(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0


@pytest.fixture
def shop(
    kafka: KafkaService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Shop]:
    try:
        find_spark_java()
    except EosError as error:
        if request.config.getoption("--require-services"):
            raise
        pytest.skip(f"no Spark could be started: {error}")
    monkeypatch.setenv("EOS_STATE__DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("EOS_WORKER__COMMIT_INTERVAL_SECONDS", "0.1")
    made = Shop(Folder(tmp_path, kafka.bootstrap_servers), f"shop{uuid.uuid4().hex[:8]}")
    yield made
    made.stop()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_an_input_grows_while_its_counts_go_on(shop: Shop) -> None:
    first, second = shop.name, f"{shop.name}2"
    shop.order(300)
    shop.run(f"eosframework apply {first}.yaml")
    old = shop.start(f"eosframework run-worker {first}.yaml")
    shop.wait_for_totals(first)
    for command in shop.fill[:-1]:
        shop.run(command)
    new = shop.start(shop.fill[-1])
    shop.order(100)
    shop.wait_for_totals(second)
    shop.wait_for_totals(first)
    assert shop.totals(second) == shop.totals(first)
    ended(old)
    ended(new)

    shop.run(shop.catch_up)
    for command in shop.grow[:-1]:
        shop.run(command)
    new = shop.start(shop.grow[-1])
    shop.order(300)
    shop.wait_for_totals(second)
    ended(new)
    expected = {customer: [*range(1, count + 1)] for customer, count in shop.orders().items()}
    assert shop.totals(second) == expected
    assert shop.quoted in shop.refusal()
