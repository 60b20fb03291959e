"""The example with a service, as its README runs it: HTTP, PostgreSQL, the relay, and a worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
import pytest

from eosframework.embedded.data_directory import free_ports
from tests.conftest import KafkaService
from tests.support.applications.pipeline import read_committed
from tests.support.processes.programs import REPOSITORY
from tests.support.processes.waiting import wait_until

pytestmark = pytest.mark.exhaustive

EXAMPLE = REPOSITORY / "examples" / "enrichment"


class Shop:
    """The files of the example with names of their own, and the service that runs them.

    Args:
        folder: of the copies.
        prefix: replaces `shop.` in the names of topics.
        environment: of all processes.
    """

    def __init__(self, folder: Path, prefix: str, environment: dict[str, str]) -> None:
        self.prefix = prefix
        self._folder = folder
        [self._port] = free_ports(1)
        self._environment = os.environ | environment | {"PORT": str(self._port)}
        self._service: subprocess.Popen[bytes] | None = None
        for file in EXAMPLE.iterdir():
            if file.is_file():
                text = file.read_text(encoding="utf-8").replace('"shop.', f'"{prefix}.')
                text = text.replace('Topology("enrichment")', f'Topology("{prefix}")')
                (folder / file.name).write_text(text)

    def eosframework(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "eosframework", *arguments],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, (arguments, done.stderr[-4000:])

    def serve(self) -> None:
        command = [sys.executable, "service.py"]
        with (self._folder / "service.log").open("ab") as log:
            self._service = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stderr=log, stdout=log
            )
        wait_until(lambda: self._answers(), "the service")

    def kill(self) -> None:
        if self._service is not None:
            self._service.kill()
            self._service.wait()

    def ask(self, method: str, path: str, content: Any) -> int:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            body = json.dumps(content)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return connection.getresponse().status
        finally:
            connection.close()

    def _answers(self) -> bool:
        assert self._service is not None
        log = (self._folder / "service.log").read_text()
        assert self._service.poll() is None, log
        try:
            return self.ask("GET", "/openapi.json", None) == 200
        except OSError:
            return False


@pytest.fixture
def shop(
    kafka: KafkaService, database: str, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Shop]:
    prefix = unique_name("shop")
    made = Shop(
        tmp_path,
        prefix,
        {
            "PYTHONPATH": str(REPOSITORY),
            "EOS_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "EOS_DATABASE__DSN": database,
            "EOS_OUTBOX__NAME": prefix,
            "EOS_STATE__DIRECTORY": str(tmp_path / "stores"),
        },
    )
    yield made
    made.kill()


def test_each_order_that_was_accepted_arrives_once_with_its_country(
    shop: Shop, kafka: KafkaService, database: str
) -> None:
    shop.eosframework("topics", "create", f"{shop.prefix}.customers", f"{shop.prefix}.orders")
    shop.eosframework("apply", "app.py")
    shop.eosframework("relay-outbox", "--until-caught-up")
    shop.serve()
    assert shop.ask("PUT", "/customers/anna", {"name": "Anna", "country": "AT"}) == 204
    orders = [{"id": str(uuid.uuid4()), "customer": "anna", "cents": 10 * n} for n in range(1, 6)]
    for order in orders:
        assert shop.ask("POST", "/orders", order) == 201
        with psycopg.connect(database) as connection:
            found = connection.execute("SELECT 1 FROM orders WHERE id = %s", [order["id"]])
            assert found.fetchone(), "the answer comes after the commit"
    shop.kill()
    shop.serve()
    assert [shop.ask("POST", "/orders", order) for order in orders] == [201] * 5, "sent again"
    assert shop.ask("POST", "/orders", orders[0] | {"id": str(uuid.uuid4()), "cents": 0}) == 422
    unknown = orders[0] | {"id": str(uuid.uuid4()), "customer": "nobody"}
    assert shop.ask("POST", "/orders", unknown) == 404
    shop.eosframework("relay-outbox", "--until-caught-up")
    shop.eosframework("run-worker", "app.py", "--until-caught-up")
    enriched = read_committed(kafka.bootstrap_servers, f"{shop.prefix}.enriched")
    values = [json.loads(message.value() or b"") for message in enriched]
    assert values == [order | {"country": "AT"} for order in orders]
    turnover = read_committed(kafka.bootstrap_servers, f"{shop.prefix}.turnover")
    assert json.loads(turnover[-1].value() or b"")["value"] == 150
