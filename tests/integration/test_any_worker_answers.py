"""Any worker answers for a key: it asks the owner, or sends the client there."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eosframework.application.control_topic import ControlTopic
from eosframework.application.worker_addresses import worker_addresses
from eosframework.cli import main
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.kafka.client.partitioner import partition_of
from tests.support.applications.answering import (
    KEYS,
    PARTITIONS,
    STORE,
    Answered,
    address_of,
    ask,
    counts,
    key,
    start_answering,
    wait_for_all,
)
from tests.support.applications.pipeline import wait_until
from tests.support.applications.totals import Totals


@pytest.fixture
def totals(kafka: Any, unique_name: Any, tmp_path: Path) -> Iterator[Totals]:
    name = unique_name("answers")
    totals = Totals(kafka.bootstrap_servers, name, tmp_path / name, partitions=PARTITIONS)
    yield totals
    totals.stop()


def test_every_worker_answers_for_every_key_or_says_where_to_ask(
    totals: Totals, capsys: pytest.CaptureFixture[str]
) -> None:
    totals.feed(300)
    workers = {name: start_answering(totals, name) for name in ("one", "two")}
    addresses = {name: address_of(worker) for name, worker in workers.items()}
    one, two = addresses.values()
    wait_until(
        lambda: (
            {key(one, name).headers.get("Eos-Instance") for name in KEYS}
            == {f"{totals.name}.one", f"{totals.name}.two"}
        ),
        "two owners",
    )
    wait_for_all(totals, one, two)
    owners = {name: key(one, name).worker for name in KEYS}
    for name, owner in owners.items():
        direct, other = key(addresses[owner], name), ({*workers} - {owner}).pop()
        proxied = key(addresses[other], name)
        assert (proxied.content, proxied.worker) == (direct.content, owner)
        assert direct.content["reached"]["transaction"] > 0
        assert direct.content["position"] > 0
        assert sum(direct.content["reached"]["positions"].values()) > 0
        redirected = key(addresses[other], name, "redirect")
        location = urlsplit(redirected.headers["Location"])
        assert (redirected.status, location.netloc) == (307, addresses[owner])
        followed = ask(location.netloc, f"{location.path}?{location.query}")
        assert (followed.content, followed.worker) == (direct.content, owner)
        # It is never forwarded, so requests never run in a circle.
        kept = key(addresses[other], name, "here")
        assert (kept.status, kept.worker) == (421, other)
        assert kept.content["owner"] == {
            "instance": f"{totals.name}.{owner}",
            "address": addresses[owner],
        }

    absent = [key(address, "none") for address in (one, two)]
    assert [answer.status for answer in absent] == [404, 404]
    assert absent[0].content == absent[1].content
    assert absent[0].content["partition"] == partition_of(b"none", PARTITIONS)
    assert ask(one, "/state/none/3").status == 404
    assert key(one, "3", "nowhere").status == 400
    ranges = [ask(address, f"/state/{STORE}?limit=1000").content for address in (one, two)]
    assert sorted(p for each in ranges for p in each["partitions"]) == [*range(PARTITIONS)]

    server = ["--set", f"kafka.bootstrap_servers={totals.bootstrap_servers}"]
    for address in (one, two):
        app = str(totals.topology_file)
        with pytest.raises(SystemExit) as stopped:
            main(["state", "get", app, STORE, "3", "--ask", address, *server])
        assert not stopped.value.code
        assert f'"count":{counts(totals)["3"]}' in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["status", str(totals.topology_file), *server])
    shown = capsys.readouterr().out
    assert f"http {one}" in shown
    assert f"http {two}" in shown


def test_while_a_partition_moves_the_answer_is_to_ask_again_and_never_that_it_is_absent(
    totals: Totals,
) -> None:
    totals.feed(200)
    one = start_answering(totals, "one")
    first = address_of(one)
    wait_for_all(totals, first)
    seen: list[Answered] = []
    over = threading.Event()

    def ask_all_the_time() -> None:
        while not over.is_set():
            seen.extend(key(first, name) for name in KEYS)

    asking = threading.Thread(target=ask_all_the_time)
    asking.start()
    try:
        two = start_answering(totals, "two", faults=["ownership.after_read=hold@1"])
        two.wait_for_fault("ownership.after_read")
        second = address_of(two)
        # The group has assigned its partitions to the second worker, which has not opened them.
        moving = [name for name in KEYS if key(first, name, "here").status == 421]
        assert moving

        def names_the_new_owner() -> bool:
            """A worker knows the group's members for a second, and may name the owner before."""
            held = [key(address, name) for address in (first, second) for name in moving]
            assert {(answer.status, answer.headers["Retry-After"]) for answer in held} == {
                (503, "1")
            }
            return {answer.worker for answer in held} == {"two"}

        wait_until(names_the_new_owner, "answers that name the new owner")
        two.release()
        wait_for_all(totals, first, second)
    finally:
        over.set()
        asking.join()
    assert {answer.status for answer in seen} == {200, 503}
    assert all("Retry-After" in answer.headers for answer in seen if answer.status == 503)
    whole = counts(totals)
    answered = [answer for answer in seen if answer.status == 200]
    assert {a.content["key"]: a.count for a in answered} == whole
    assert {a.worker for a in answered} == {"one", "two"}


@dataclass(slots=True)
class Recorder:
    """A TCP server in front of a worker, or of nothing: it keeps what it is sent."""

    target: str | None = None
    requests: list[bytes] = field(default_factory=list[bytes])
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _pass_on(self, client: socket.socket) -> None:
        with client, suppress(OSError):  # the worker has ended
            request = client.recv(65_536)
            self.requests.append(request)
            if self.target is not None:
                host, _, port = self.target.partition(":")
                with socket.create_connection((host, int(port))) as server:
                    server.sendall(request)
                    while part := server.recv(65_536):
                        client.sendall(part)


@pytest.fixture
def recorders() -> Iterator[list[Recorder]]:
    made = [Recorder(), Recorder(), Recorder()]
    for recorder in made:
        threading.Thread(target=recorder.serve, daemon=True).start()
    yield made
    for recorder in made:
        recorder.close()


TOKEN = {"Authorization": "Bearer secret-7", "Cookie": "session=secret-8"}


def test_a_token_reaches_the_owner_alone_and_no_address_of_a_worker_that_is_no_member(
    totals: Totals, recorders: list[Recorder]
) -> None:
    proxy, gone, foreign = recorders
    totals.feed(200)
    one = start_answering(totals, "one")
    first = address_of(one)
    two = start_answering(totals, "two", f"worker.http_advertised_address={proxy.address}")
    proxy.target = address_of(two)
    three = start_answering(totals, "three", f"worker.http_advertised_address={gone.address}")
    gone.target = address_of(three)
    wait_until(
        lambda: (
            {a.worker for name in KEYS if (a := key(first, name)).status == 200}
            == {"one", "two", "three"}
        ),
        "three owners",
    )
    # An entry alone makes no member.
    settings = KafkaSettings(bootstrap_servers=totals.bootstrap_servers)
    control = ControlTopic(totals.name, settings, ClusterAdmin(settings))
    stranger = f"worker/{totals.name}.stranger"
    control.write({stranger: {"http": foreign.address, "at": round(time.time() * 1000)}})
    assert worker_addresses(control.refresh())[f"{totals.name}.stranger"] == foreign.address
    three.signal(signal.SIGTERM)
    assert three.wait() == 0
    wait_for_all(totals, first)
    for recorder in recorders:
        recorder.requests.clear()
    answers = [ask(first, f"/state/{STORE}/{name}", TOKEN) for name in KEYS]
    assert {(answer.status, answer.worker) for answer in answers} == {(200, "one"), (200, "two")}
    asked = [request for request in proxy.requests if b"at=here" in request]
    assert len(asked) == sum(answer.worker == "two" for answer in answers)
    assert all(b"authorization: Bearer secret-7\r\n" in request for request in asked)
    assert not any(b"secret-8" in request for request in asked)
    assert (gone.requests, foreign.requests) == ([], [])


def test_an_address_that_is_another_workers_is_one_message_that_names_both(
    totals: Totals, recorders: list[Recorder]
) -> None:
    totals.feed(200)
    one = start_answering(totals, "one")
    first = address_of(one)
    # The port of a neighbour, as a copied configuration has it.
    two = start_answering(totals, "two", f"worker.http_advertised_address={first}")
    second = address_of(two)
    wait_until(lambda: any(key(first, n).status == 502 for n in KEYS), "a wrong address")
    (message,) = {a.content["error"] for n in KEYS if (a := key(first, n)).status == 502}
    assert f"worker '{totals.name}.two' of '{totals.name}' announces {first}" in message
    assert f"where '{totals.name}.one' of '{totals.name}' answers" in message
    assert "set worker.http_advertised_address" in message
    # The other direction works, and so does a direct question.
    wait_until(lambda: all(key(second, n).status == 200 for n in KEYS), "answers of the second")
