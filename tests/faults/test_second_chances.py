"""Replays and workers are killed while records get another chance; each counts once all the same.

What is there in the end is compared with the numbers that were fed, by a reader that knows nothing
of retries or marks.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.applications.pipeline import Pipeline, wait_until
from tests.support.applications.second_chances import TOPOLOGY, Forgiving

REPLAY = (
    *("dead-letters", "replay", "--all", "--yes"),
    # One that stands still for longer than that cannot tell a successor from its own timeout.
    *("--set", "worker.transaction_timeout_seconds=300"),
)


@pytest.fixture
def forgiving(make_pipeline: Callable[..., Pipeline]) -> Callable[[str, str], Forgiving]:
    def make(policy: str, producers: str) -> Forgiving:
        topology = TOPOLOGY.replace("POLICY", policy)
        return Forgiving(make_pipeline(topology=topology, partitions=2), 200, producers)

    return make


each_kind = pytest.mark.parametrize(
    "producers", ["worker", pytest.param("partition", marks=pytest.mark.exhaustive)]
)
"""One producer for both partitions, or one for each."""


@each_kind
def test_a_replay_killed_at_any_step_or_overtaken_loses_and_doubles_nothing(
    forgiving: Callable[[str, str], Forgiving], producers: str
) -> None:
    app = forgiving("replay: true", producers)
    app.catch_up()
    assert len(app.read(app.letters)) == len(app.refused)

    for point in ("transaction.before_commit", "transaction.after_commit"):
        killed = app.start(*REPLAY, faults=[f"{point}=kill"])
        assert killed.wait() == -signal.SIGKILL, killed.log
        assert killed.fired(point)
    still = app.start(*REPLAY, faults=["transaction.before_commit=stop"])
    still.wait_for_fault("transaction.before_commit")
    finished = app.run(*REPLAY)
    assert finished.exit_code == 0, finished.err
    still.signal(signal.SIGCONT)
    assert still.wait() == 3, still.log
    assert "another replay" in still.log
    assert "0 dead letters chosen" in app.run(*REPLAY).out

    app.fix()
    app.catch_up()
    assert app.written == Counter(app.numbers)
    replayed = [
        dict(m.headers() or ())["__eos.errors.replayed"]
        for m in app.read(f"{app.pipeline.name}-numbers-replay")
    ]
    assert len(replayed) == len(set(replayed)) == len(app.refused)
    audit = app.run("audit", "--by", "functions")
    assert audit.exit_code == 0, audit.out


@each_kind
def test_workers_killed_while_records_wait_for_their_next_attempt_lose_and_double_nothing(
    forgiving: Callable[[str, str], Forgiving], producers: str
) -> None:
    app = forgiving(f"retry: [{', '.join(['1s'] * 1000)}]", producers)
    waiting = f"{app.pipeline.name}-numbers.1s-retry"
    for point in ("transaction.after_send_offsets", "transaction.after_commit"):
        killed = app.worker(faults=[f"{point}=kill@2"])
        assert killed.wait() == -signal.SIGKILL, killed.log
        assert killed.fired(point)
    last = app.worker()
    others = len(app.numbers) - len(app.refused)
    wait_until(lambda: sum(app.written.values()) == others, "all others in the output")
    seen = len(app.read(waiting))
    wait_until(lambda: len(app.read(waiting)) > seen, "another attempt")
    last.signal(signal.SIGKILL)
    last.wait()

    app.fix()
    app.catch_up()
    assert app.written == Counter(app.numbers)
    assert app.read(app.letters) == []
    audit = app.run("audit", "--by", "receipts")
    assert audit.exit_code == 0, audit.out
