"""The faults: each brings itself about in a trial, and fails if it did not fire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.failures import FaultFailed
from benchmarks.faults.kinds import Kind
from benchmarks.faults.spy import aborts, begins_to_join, commits
from benchmarks.faults.trial import FIRED_SECONDS, RESUMED_SECONDS, Trial
from tests.support.faults.proxy import (
    ADD_PARTITIONS,
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    HeldRequest,
)
from tests.support.servers.three_brokers import Failure, ThreeBrokers

LATE_REQUESTS = 3
CRASHES = 2
ABORTS = 8
AT_ONCE_SECONDS = 3.0


@dataclass(frozen=True)
class Fault:
    """One fault.

    Args:
        act: brings it about.
        nodes: brokers of the cluster.
    """

    kind: Kind
    act: Callable[[Trial], None]
    session_seconds: float = 6.0
    transaction_seconds: float = 20.0
    nodes: int = 1


def kill(trial: Trial) -> None:
    """Kill the process after a record, after offsets, and in a commit, in an order by chance."""
    moments = [PRODUCE, TXN_OFFSET_COMMIT, END_TXN]
    sent = [moment if moment in trial.spy.kinds else PRODUCE for moment in moments]
    for api_key in trial.chance.sample(sent, k=len(sent)):
        trial.next_request(api_key)
        trial.pause(0, 0.02)
        trial.instances[0].kill()
        trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)
        trial.pause(0.5, 1)


def stop_past_session(trial: Trial) -> None:
    """Let an instance stand until another one has its partitions; then it continues."""
    first = trial.instances[0]
    _stand_in_transaction(trial)
    before = trial.committed()
    trial.start()
    trial.wait(lambda: trial.committed() > before, "a commit of the successor", 90)
    first.resume()
    trial.pause(2, 3)


def stop_past_transaction(trial: Trial) -> None:
    """Let an instance stand in a transaction until the brokers have aborted it."""
    name = _stand_in_transaction(trial)
    trial.wait(lambda: not _is_open(trial, name), f"the abort of what {name} had open", 60)
    trial.pause(0, 1)
    trial.instances[0].resume()
    trial.pause(2, 3)


def rebalance_in_commit(trial: Trial) -> None:
    """Let a second instance join while the first one's commit does not get through."""
    held = trial.hold(END_TXN, commits, all_=True)
    trial.came(held)
    joined = trial.spy.expect(lambda sent: begins_to_join(sent.api_key, sent.frame))
    trial.start()
    trial.sent(joined, RESUMED_SECONDS)
    trial.pause(0.5, 2)
    held.let_repetitions_pass()
    trial.pause(3, 4)


def bounce(trial: Trial) -> None:
    """Kill the broker that leads an output's partition while a transaction is open; restart it.

    Of three: a lone broker that starts again loses markers, whatever the client does.
    """
    brokers = ThreeBrokers(trial.cluster.cluster)
    trial.next_request(PRODUCE)
    trial.pause(0, 0.1)
    leader = brokers.leader(trial.outputs[0], 0)
    brokers.fail(leader, Failure.KILLED)
    trial.wait(lambda: brokers.leader(trial.outputs[0], 0) not in (leader, -1), "a new leader", 60)
    trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)
    trial.pause(1, 3)
    brokers.bring_back(leader)


def move_coordinator(trial: Trial) -> None:
    """Kill the broker that coordinates the open transaction, and bring it back later."""
    brokers = ThreeBrokers(trial.cluster.cluster)
    name = trial.next_request(PRODUCE).transactional_id
    before = brokers.transaction_coordinator(name)
    brokers.fail(before, Failure.KILLED)

    def moved() -> bool:
        return brokers.transaction_coordinator(name) not in (before, -1)

    trial.wait(moved, f"another coordinator of {name}", FIRED_SECONDS)
    trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)
    trial.pause(1, 3)
    brokers.bring_back(before)


def late_commit(trial: Trial) -> None:
    """Hold an EndTxn that commits, and deliver it into a later transaction."""
    for _ in range(LATE_REQUESTS):
        held = trial.hold(END_TXN, commits)
        trial.came(held)
        trial.next_request(END_TXN)
        _deliver_into_the_next(trial, held.deliver)


def late_abort(trial: Trial) -> None:
    """Hold an EndTxn that aborts, and deliver it into a later transaction."""
    for _ in range(LATE_REQUESTS):
        held = trial.hold(END_TXN, aborts)
        _provoke_until(trial, held)
        _deliver_into_the_next(trial, held.deliver)


def late_partitions(trial: Trial) -> None:
    """Hold an AddPartitionsToTxn, and deliver it while no transaction is open."""
    held = trial.hold(ADD_PARTITIONS)
    trial.came(held)
    trial.next_request(END_TXN)
    trial.feeder.pause()
    fed = trial.feeder.appended
    trial.wait(lambda: trial.committed() == fed, "the commit of all input", 60)
    held.deliver()
    trial.pause(trial.transaction_seconds + 1, trial.transaction_seconds + 2)
    trial.feeder.resume()
    trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)


def late_offsets(trial: Trial) -> None:
    """Deliver the offsets of a transaction after those of the next one, which then commits.

    The group's offsets are read at a start, so the process is killed after that commit.
    """
    for _ in range(CRASHES):
        held = trial.hold(TXN_OFFSET_COMMIT)
        trial.came(held)
        trial.next_request(END_TXN)
        overtaken = trial.hold(END_TXN, all_=True)
        trial.came(overtaken)
        held.deliver()
        ended = trial.expect(END_TXN, commits)
        overtaken.let_repetitions_pass()
        trial.sent(ended)
        trial.pause(0.02, 0.1)
        trial.instances[0].kill()
        trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)


def late_record(trial: Trial) -> None:
    """Hold records that are then aborted, and deliver them before those of a later transaction."""
    for _ in range(LATE_REQUESTS):
        held = _aborted_records(trial)
        trial.pause(0.05, 0.3)
        held.deliver()
        held.let_repetitions_pass()
        trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)
        trial.pause(0.5, 1)


def _aborted_records(trial: Trial) -> HeldRequest:
    """Hold records until the transaction of the first of them was aborted and a next one begun."""
    # Those of the other output must arrive where the brokers' refusal is what causes an abort.
    left = trial.outputs[0].encode() if trial.peer.aborts_refused_outputs else b""
    for _ in range(ABORTS):
        held = trial.hold(PRODUCE, lambda frame: left in frame, all_=True)
        trial.came(held)
        begun = trial.expect(ADD_PARTITIONS)
        if trial.provoke_abort(AT_ONCE_SECONDS):
            if Kind.LATE_PARTITIONS not in trial.peer.not_struck:
                trial.sent(begun)
            return held
        # The failure would come after the commit, which waits for the records.
        held.let_repetitions_pass()
        trial.next_request(END_TXN, seconds=RESUMED_SECONDS)
    raise FaultFailed(f"in {ABORTS} attempts no transaction whose records are held was aborted")


def _provoke_until(trial: Trial, held: HeldRequest) -> None:
    """Provoke aborts until one is sent and held; the abort of an empty transaction is not sent."""
    for _ in range(ABORTS):
        if trial.provoke_abort(AT_ONCE_SECONDS) and held.came:
            return
        trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)
    raise FaultFailed(f"of {ABORTS} aborts that were provoked none was sent as an EndTxn")


def _deliver_into_the_next(trial: Trial, deliver: Callable[[], object]) -> None:
    trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)
    trial.pause(0, 0.2)
    deliver()
    trial.next_request(PRODUCE, seconds=RESUMED_SECONDS)
    trial.pause(0.5, 1)


def _stand_in_transaction(trial: Trial) -> str:
    """Let the first instance stand while a transaction of it is open, and return its id."""
    for _ in range(20):
        name = trial.next_request(PRODUCE).transactional_id
        trial.instances[0].suspend()
        if not name or _is_open(trial, name):
            return name
        trial.instances[0].resume()
    raise FaultFailed("the process never stood in a transaction, in 20 attempts")


def _is_open(trial: Trial, transactional_id: str) -> bool:
    found = trial.transaction(transactional_id)
    return found is not None and found.is_open


FAULTS = {
    fault.kind: fault
    for fault in (
        Fault(Kind.KILL, kill),
        Fault(Kind.SESSION, stop_past_session),
        Fault(Kind.TRANSACTION, stop_past_transaction, session_seconds=30, transaction_seconds=6),
        Fault(Kind.REBALANCE, rebalance_in_commit),
        Fault(Kind.BOUNCE, bounce, nodes=3),
        Fault(Kind.COORDINATOR, move_coordinator, nodes=3),
        Fault(Kind.LATE_COMMIT, late_commit),
        Fault(Kind.LATE_ABORT, late_abort),
        Fault(Kind.LATE_PARTITIONS, late_partitions, transaction_seconds=6),
        Fault(Kind.LATE_OFFSETS, late_offsets),
        Fault(Kind.LATE_RECORD, late_record),
    )
}
