"""Signs of stragglers: sockets that changed, and counters that rose."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pytest

from eosframework.kafka.suspicion import Suspicion
from eosframework.kafka.watch import ConnectionWatch, StatsSamples


def link(directory: Path, number: int, target: str) -> Path:
    path = directory / str(number)
    path.symlink_to(target)
    return path


def statistics(microseconds: int, **disconnects: int) -> str:
    brokers = {name: {"disconnects": n, "req_timeouts": 0} for name, n in disconnects.items()}
    return orjson.dumps({"ts": microseconds, "brokers": brokers}).decode()


def now_microseconds() -> int:
    return time.monotonic_ns() // 1000


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    link(tmp_path, 0, "/dev/null")
    link(tmp_path, 3, "socket:[1000]")
    return tmp_path


def test_unchanged_sockets_keep_the_generation(descriptors: Path) -> None:
    watch = ConnectionWatch(descriptors)
    first = watch.look()
    link(descriptors, 4, "pipe:[7]")
    link(descriptors, 5, "/some/file")
    assert watch.look() == first


@pytest.mark.parametrize("change", ["lost", "new", "replaced"])
def test_a_changed_socket_raises_the_generation_once(descriptors: Path, change: str) -> None:
    watch = ConnectionWatch(descriptors)
    first = watch.look()
    if change != "new":
        (descriptors / "3").unlink()
    if change != "lost":
        link(descriptors, 4 if change == "new" else 3, "socket:[1001]")
    changed = watch.look()
    assert changed > first
    assert watch.look() == changed


def test_where_descriptors_cannot_be_listed_every_look_is_a_change(tmp_path: Path) -> None:
    watch = ConnectionWatch(tmp_path / "absent")
    assert watch.look() < watch.look() < watch.look()


def test_a_fault_of_one_broker_is_not_outweighed_by_another_that_went_away() -> None:
    samples = StatsSamples()
    samples(statistics(1, a=5))
    earlier = samples.newest()
    assert earlier is not None
    samples(statistics(2, b=1))
    later = samples.newest()
    assert later is not None
    assert later.shows_more_than(earlier.faults)
    assert not later.shows_more_than(later.faults)


def test_the_users_own_stats_callback_keeps_its_interval() -> None:
    seen: list[str] = []
    often = StatsSamples(seen.append, forward_every_seconds=0)
    seldom = StatsSamples(seen.append, forward_every_seconds=3600)
    often("{}")
    seldom("{}")
    assert len(seen) == 1


def test_a_clean_generation_is_not_asked_about_again() -> None:
    samples = StatsSamples()
    served: list[float] = []

    def serve(seconds: float) -> None:
        served.append(seconds)
        samples(statistics(now_microseconds(), a=0))

    suspicion = Suspicion(samples, serve)
    suspicion.transaction_ended()
    assert suspicion.faults_since_clean(1) is None
    assert served
    served.clear()
    suspicion.transaction_ended()
    assert suspicion.faults_since_clean(1) is None
    assert not served


def test_a_sample_from_before_the_end_of_the_transaction_proves_nothing() -> None:
    samples = StatsSamples()
    samples(statistics(now_microseconds(), a=0))
    suspicion = Suspicion(samples, lambda _: samples(statistics(now_microseconds(), a=1)))
    suspicion.transaction_ended()
    assert suspicion.faults_since_clean(1) == {"a": 1}


def test_faults_of_the_init_do_not_make_a_replacement_suspect() -> None:
    samples = StatsSamples()
    suspicion = Suspicion(samples, lambda _: samples(statistics(now_microseconds(), a=1)))
    suspicion.take_faults_as_known()
    suspicion.transaction_ended()
    assert suspicion.faults_since_clean(1) is None


def test_a_producer_without_statistics_is_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eosframework.kafka.suspicion.SAMPLE_SECONDS", 0.01)
    suspicion = Suspicion(StatsSamples(), lambda _: None)
    suspicion.transaction_ended()
    assert suspicion.faults_since_clean(1) is not None
