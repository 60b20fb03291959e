"""A session decides each transaction once, whatever the outcome of each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    IdExpired,
    InstanceFenced,
    OutcomeUnknown,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionError,
    TransactionFatal,
    TransactionTooLong,
)
from eosframework.transactions.ports import Commit, Committed, Output
from eosframework.transactions.session.session_group import (
    SessionCounts,
    SessionGroup,
)
from eosframework.transactions.session.session_states import (
    MOVES,
    OUT,
    PATIENCE_SECONDS,
    Event,
    Outcome,
    Policy,
    State,
)
from eosframework.transactions.session.transaction_session import TransactionSession, Work

TIMEOUT_SECONDS = 30.0
RECORD: Output = ("out", b"1", None, -1, None, None, 0, None)
ENDS = Policy(TIMEOUT_SECONDS, successor="a later one", advice="Start it again")
WATCHES = Policy(
    TIMEOUT_SECONDS,
    successor="a rival",
    advice="Stop it",
    watch_seconds=2.0,
    rival_seconds=30.0,
    patience_seconds=None,
)
Fault = tuple[str, Callable[[str], Exception], bool]
"""Call, error, and whether the call had its effect all the same."""


class Bench(Work[int]):
    """A ledger whose transactions are numbers; its progress is how many are committed."""

    def __init__(self, policy: Policy, *faults: Fault) -> None:
        self.faults = list(faults)
        self.now = 0.0
        self.visible: list[int] = []
        self.pending: list[int] | None = None
        self.calls: list[str] = []
        self.known = 0
        self.unsafe = False
        self.drops = 0
        self.transactional_id = "t"
        self.is_suspect = False
        self.counts = SessionCounts()
        self.session: TransactionSession[int] = TransactionSession(self, policy, lambda: self.now)
        self.session.work = self
        events = structlog.get_logger("test")
        self.group = SessionGroup(
            self, self.read, self.counts, events, lambda: self.now, self._sleep
        )

    def transact(self) -> bool:
        """Write the next number."""
        return self.group.transact(self.session, self._fill)

    def _fill(self) -> Commit:
        self.session.produce([RECORD])
        return Commit(self, (), None)

    def _sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds

    def _check(self, call: str) -> Exception | None:
        """Return the planned fault of a call."""
        self.calls.append(call)
        if self.faults and self.faults[0][0] == call:
            _, error, done = self.faults.pop(0)
            self.unsafe = call != "read"
            self.done = done
            return error(call)
        self.done = True
        return None

    # --- the output

    @property
    def produce(self) -> Callable[..., None]:
        def produce(*fields: Any) -> None:
            assert self.pending is not None
            if error := self._check("produce"):
                raise error
            self.pending.append(self.known)

        return produce

    def explain(self, error: Exception) -> TransactionError:
        assert isinstance(error, TransactionError)
        return error

    def begin(self) -> None:
        assert not self.unsafe, "no transaction may begin before the id is taken again"
        assert self.pending is None
        if error := self._check("begin"):
            raise error
        self.pending = []

    def poll(self, timeout_seconds: float = 0) -> None: ...

    def deliver(self) -> None: ...

    # --- the outputs

    def commit(self, commits: Sequence[Commit], within_seconds: float | None = None) -> Any:
        error = self._check("commit")
        if self.done:
            self.visible += self.pending or ()
        self.pending = None
        if isinstance(error, Suspect):
            self.unsafe = False
            return [Committed(None, True)]
        return [Committed(error)]  # type: ignore[arg-type]

    def abort(self, outputs: Any) -> Any:
        return self._end("abort")

    def recycle(self, outputs: Any) -> Any:
        return self._end("recycle")

    def _end(self, call: str) -> Any:
        if error := self._check(call):
            return [error]
        self.pending, self.unsafe, self.is_suspect = None, False, False
        return [None]

    def open(self, transactional_ids: Any) -> Any: ...

    def close(self, outputs: Any) -> None: ...

    def stop(self) -> None: ...

    # --- the user

    def committed(self, seconds: float) -> None:
        self.known += 1

    def reject(self, error: DataRejected) -> None:
        self.calls.append("reject")

    def drop(self) -> None:
        self.drops += 1

    def read(self, sessions: Sequence[TransactionSession[int]]) -> Sequence[int]:
        assert not self.unsafe, "nothing is final before the id is taken again"
        if error := self._check("read"):
            raise error
        return [len(self.visible)]

    def outcome(self, found: int) -> Outcome:
        if found == self.known:
            return Outcome.NOT_COMMITTED
        return Outcome.COMMITTED if found == self.known + 1 else Outcome.OVERTAKEN

    def overtaken(self, found: int) -> TransactionError:
        return TaskFenced(f"the progress is {found}")

    def resume(self, found: int, outcome: Outcome) -> None:
        self.known = found


class Suspect(Exception):
    """The commit is confirmed, and the producer was replaced."""


CALLS = ("begin", "produce", "commit", "abort", "recycle", "read")
KINDS: list[Callable[[str], Exception]] = [
    Retriable,
    TransactionAborted,
    DataRejected,
    TransactionTooLong,
    OutcomeUnknown,
    TaskFenced,
    IdExpired,
    TransactionFatal,
]


def faults_of() -> st.SearchStrategy[Fault]:
    """A fault that this call can have, and its effect."""
    undecided = [Retriable, OutcomeUnknown]
    commits = st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(KINDS), st.just(False)),
        st.tuples(st.just("commit"), st.sampled_from([*undecided, Suspect]), st.just(True)),
    )
    early = st.tuples(st.sampled_from(["begin", "produce"]), st.sampled_from(KINDS), st.just(False))
    inits = [Retriable, OutcomeUnknown, TaskFenced, IdExpired, TransactionFatal]
    ends = st.tuples(st.sampled_from(["abort", "recycle"]), st.sampled_from(inits), st.just(False))
    reads = st.tuples(
        st.just("read"), st.sampled_from([Retriable, ClusterUnreachable]), st.just(False)
    )
    return st.one_of(commits, early, ends, reads)


@given(st.lists(faults_of(), max_size=10), st.booleans())
def test_each_transaction_counts_once_whatever_happens_to_each_call(
    faults: list[Fault], watches: bool
) -> None:
    """The bench refuses a begin and a read before the id is taken again."""
    bench = Bench(WATCHES if watches else ENDS, *faults)
    try:
        for _ in range(60):
            before = len(bench.visible)
            is_committed = bench.transact()
            assert is_committed == (len(bench.visible) == before + 1)
            assert bench.known == len(bench.visible)
            assert bench.session.state is State.READY
    except RunError:
        assert TransactionFatal in {kind for _, kind, _ in faults}
    except InstanceFenced:
        assert TaskFenced in {kind for _, kind, _ in faults}
    assert bench.visible == list(range(len(bench.visible)))


FOLLOWS: dict[Callable[[str], Exception], tuple[State, str]] = {
    Retriable: (State.UNKNOWN, "recycle"),
    TransactionAborted: (State.ABORTABLE, "abort"),
    DataRejected: (State.ABORTABLE, "abort"),
    TransactionTooLong: (State.ABORTABLE, "abort"),
    OutcomeUnknown: (State.UNKNOWN, "recycle"),
    TaskFenced: (State.FENCED, "recycle"),
    IdExpired: (State.FENCED, "recycle"),
}


@pytest.mark.parametrize("call", ["begin", "produce", "commit"])
@pytest.mark.parametrize("kind", FOLLOWS)
def test_what_follows_from_an_error_is_the_same_for_each_call(
    kind: Callable[[str], Exception], call: str
) -> None:
    bench = Bench(WATCHES, (call, kind, False))
    states: list[State] = []
    move = bench.session.move

    def noted(event: Event) -> None:
        move(event)
        states.append(bench.session.state)

    bench.session.move = noted  # type: ignore[method-assign]
    assert not bench.transact()
    out, ended_by = FOLLOWS[kind]
    assert states[-3:] == [out, State.TAKEN, State.READY]
    assert [c for c in bench.calls if c in ("abort", "recycle")] == [ended_by]
    assert bench.drops == 1
    assert bench.transact()


@pytest.mark.parametrize("call", ["begin", "produce", "commit"])
def test_a_fatal_error_ends_the_session(call: str) -> None:
    bench = Bench(ENDS, (call, TransactionFatal, False))
    with pytest.raises(RunError, match=call):
        bench.transact()
    assert bench.session.state is State.ENDED
    with pytest.raises(AssertionError, match="ended"):
        bench.session.begin()


@pytest.mark.parametrize("call", ["begin", "produce", "commit"])
def test_a_fence_that_cannot_be_expiry_ends_work_that_the_successor_continues(call: str) -> None:
    bench = Bench(ENDS, (call, TaskFenced, False))
    with pytest.raises(InstanceFenced, match="t was taken over by a later one; this one ends"):
        bench.transact()
    assert "recycle" not in bench.calls, "a new init would fence the successor"


def test_a_fence_of_an_expired_transaction_is_no_rival() -> None:
    bench = Bench(ENDS)
    for _ in range(4):
        bench.session.begin()
        bench.now += TIMEOUT_SECONDS
        bench.group.failed(bench.session, TaskFenced("expired"))
        bench.group.settle(bench.session)
    assert bench.transact()


def test_an_expired_transaction_explains_no_fences_of_the_inits_that_follow() -> None:
    bench = Bench(WATCHES, *[("recycle", TaskFenced, False)] * 10)
    bench.session.begin()
    bench.now += TIMEOUT_SECONDS
    bench.group.failed(bench.session, TaskFenced("expired"))
    with pytest.raises(InstanceFenced, match="taken over 3 times by a rival"):
        bench.group.settle(bench.session)


def test_rivals_end_a_session_that_watches_although_it_commits_in_between() -> None:
    bench = Bench(WATCHES)
    for _ in range(2):
        bench.faults.append(("commit", TaskFenced, False))
        assert not bench.transact()
        assert bench.transact()
    bench.faults.append(("commit", TaskFenced, False))
    with pytest.raises(InstanceFenced, match="taken over 3 times by a rival"):
        bench.transact()


def test_fences_that_are_far_apart_are_no_rival() -> None:
    bench = Bench(WATCHES)
    for _ in range(10):
        bench.faults.append(("commit", TaskFenced, False))
        assert not bench.transact()
        assert bench.transact()
        bench.now += 30.0


def test_pauses_double_and_patience_ends() -> None:
    faults: list[Fault] = [("commit", OutcomeUnknown, True)]
    bench = Bench(ENDS, *faults, *[("recycle", Retriable, False)] * 100)
    with pytest.raises(ClusterUnreachable, match="no transaction was committed for 120 s"):
        bench.transact()
    assert PATIENCE_SECONDS <= bench.now < PATIENCE_SECONDS + 5
    assert 20 < bench.calls.count("recycle") < 40


def test_data_that_is_bisected_uses_up_no_patience() -> None:
    bench = Bench(ENDS)
    for _ in range(20):
        bench.now += PATIENCE_SECONDS / 4
        bench.faults.append(("commit", DataRejected, False))
        assert not bench.transact()
    assert bench.transact()


def test_a_suspect_that_another_process_overtook_is_fenced() -> None:
    bench = Bench(WATCHES, ("commit", Suspect, True))
    bench.session.begin()
    commit = bench._fill()
    committed = bench.committed

    def overtaken(seconds: float) -> None:
        committed(seconds)
        bench.visible += [99, 100]

    bench.committed = overtaken  # type: ignore[method-assign]
    bench.group.commit([bench.session], [commit])
    assert bench.session.state is State.FENCED


def test_a_suspect_that_could_not_be_replaced_is_taken_again_before_its_progress_is_read() -> None:
    """Its next begin would take the id, with nothing read or written after that."""
    bench = Bench(WATCHES, ("commit", Suspect, True))
    bench.is_suspect = True
    assert bench.transact()
    assert bench.calls[-3:] == ["commit", "recycle", "read"]
    assert bench.session.state is State.READY


def test_the_table_has_a_way_back_from_each_state_and_none_from_the_end() -> None:
    reached = {State.READY}
    while more := {to for state in reached for to in MOVES[state].values()} - reached:
        reached |= more
    assert reached == set(State)
    for state in set(State) - {State.ENDED}:
        found = {state}
        while more := {to for at in found for to in MOVES[at].values()} - found:
            found |= more
        assert State.READY in found, state
        assert Event.ENDED in MOVES[state]
    assert set(MOVES[State.ENDED].values()) == {State.ENDED}
    for state in OUT:
        assert State.READY not in MOVES[state].values(), "R1 and R2 are between"
        assert State.OPEN not in MOVES[state].values()
