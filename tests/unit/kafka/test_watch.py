"""Signs of stragglers: sockets that changed, and counters that rose."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest

from eosframework.kafka.suspicion import Suspicion
from eosframework.kafka.watch import ConnectionWatch, Look, StatsSamples


def link(process: Path, number: int, target: str) -> Path:
    path = process / "fd" / str(number)
    path.symlink_to(target)
    return path


def count(process: Path, active_opens: int) -> None:
    """Write what the kernel counts, in its own format."""
    (process / "net" / "snmp").write_text(
        "Ip: Forwarding DefaultTTL\nIp: 2 64\n"
        f"Tcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 {active_opens} 7\n"
        "Udp: InDatagrams\nUdp: 0\n"
    )


def statistics(microseconds: int, *, connected_for: int = 1_000_000, **disconnects: int) -> str:
    brokers = {
        name: {
            "disconnects": n,
            "req_timeouts": 0,
            "state": "UP" if connected_for else "INIT",
            "stateage": connected_for,
        }
        for name, n in disconnects.items()
    }
    return orjson.dumps({"ts": microseconds, "brokers": brokers}).decode()


def now_microseconds() -> int:
    return time.monotonic_ns() // 1000


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """What the system shows of a process with one socket."""
    (tmp_path / "fd").mkdir()
    (tmp_path / "net").mkdir()
    link(tmp_path, 0, "/dev/null")
    link(tmp_path, 3, "socket:[1000]")
    count(tmp_path, 40)
    return tmp_path


def test_unchanged_sockets_give_the_same_look(process: Path) -> None:
    watch = ConnectionWatch(process)
    first = watch.look()
    link(process, 4, "pipe:[7]")
    link(process, 5, "/some/file")
    assert watch.look() == first


@pytest.mark.parametrize("change", ["lost", "new", "replaced"])
def test_a_changed_socket_is_told_once(process: Path, change: str) -> None:
    watch = ConnectionWatch(process)
    first = watch.look()
    if change != "new":
        (process / "fd" / "3").unlink()
    if change != "lost":
        link(process, 4 if change == "new" else 3, "socket:[1001]")
    changed = watch.look()
    assert changed.sockets > first.sockets
    assert changed.opened == first.opened
    assert watch.look() == changed


def test_a_connection_opened_and_lost_between_two_looks_is_told_once(process: Path) -> None:
    watch = ConnectionWatch(process)
    first = watch.look()
    count(process, 41)
    changed = watch.look()
    assert changed.opened > first.opened
    assert changed.sockets == first.sockets
    assert watch.look() == changed


def test_what_the_system_does_not_show_counts_as_a_change(tmp_path: Path) -> None:
    watch = ConnectionWatch(tmp_path / "absent")
    looks = [watch.look() for _ in range(3)]
    assert len({look.sockets for look in looks}) == len({look.opened for look in looks}) == 3


def test_a_fault_of_one_broker_is_not_outweighed_by_another_that_went_away() -> None:
    samples = StatsSamples()
    samples(statistics(1, a=5))
    earlier = samples.newest()
    assert earlier is not None
    samples(statistics(2, b=1))
    later = samples.newest()
    assert later is not None
    assert later.faults_beyond(earlier.faults) == {"b": 1, "a, forgotten": 1}
    assert not later.faults_beyond(later.faults)


def test_the_users_own_stats_callback_keeps_its_interval() -> None:
    seen: list[str] = []
    often = StatsSamples(seen.append, forward_every_seconds=0)
    seldom = StatsSamples(seen.append, forward_every_seconds=3600)
    often("{}")
    seldom("{}")
    assert len(seen) == 1


CLEAN = Look(1, 1)


class Statistics:
    """A producer whose statistics arrive when it is polled."""

    def __init__(self, **sample: int) -> None:
        self.samples = StatsSamples()
        self.sample = sample
        self.polls = 0
        self.suspicion = Suspicion(self.samples, self.serve)

    def serve(self, seconds: float) -> None:
        self.polls += 1
        self.samples(statistics(now_microseconds(), **self.sample))

    def faults_after_a_transaction(self, look: Look) -> Mapping[str, int] | None:
        self.polls = 0
        self.suspicion.transaction_ended()
        return self.suspicion.faults_since_clean(look)


def test_a_clean_look_is_not_asked_about_again() -> None:
    producer = Statistics(a=0)
    assert producer.faults_after_a_transaction(CLEAN) is None
    assert producer.polls
    assert producer.faults_after_a_transaction(CLEAN) is None
    assert not producer.polls


@pytest.mark.parametrize(
    ("connected_for", "asks"),
    [
        pytest.param(1_000_000, False, id="connected to every broker"),
        pytest.param(0, True, id="one broker is not connected"),
        pytest.param(1, True, id="connected only after the look"),
    ],
)
def test_a_connection_that_came_and_went_is_asked_about_where_it_could_be_the_producers(
    connected_for: int, asks: bool
) -> None:
    producer = Statistics(a=0, connected_for=connected_for)
    assert producer.faults_after_a_transaction(CLEAN) is None
    assert producer.faults_after_a_transaction(Look(1, 2)) is None
    assert bool(producer.polls) == asks


def test_a_broker_that_is_no_longer_counted_makes_the_producer_suspect() -> None:
    producer = Statistics(a=0, b=0)
    assert producer.faults_after_a_transaction(CLEAN) is None
    producer.sample = {"a": 0}
    assert producer.faults_after_a_transaction(Look(2, 2)) == {"b, forgotten": 1}


def test_a_sample_from_before_the_end_of_the_transaction_proves_nothing() -> None:
    producer = Statistics(a=1)
    producer.samples(statistics(now_microseconds(), a=0))
    assert producer.faults_after_a_transaction(CLEAN) == {"a": 1}


def test_faults_of_the_init_do_not_make_a_replacement_suspect() -> None:
    producer = Statistics(a=1)
    producer.suspicion.take_faults_as_known()
    assert producer.faults_after_a_transaction(CLEAN) is None


def test_a_producer_without_statistics_is_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eosframework.kafka.suspicion.SAMPLE_SECONDS", 0.01)
    suspicion = Suspicion(StatsSamples(), lambda _: None)
    suspicion.transaction_ended()
    assert suspicion.faults_since_clean(CLEAN) is not None
