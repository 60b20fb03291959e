"""What an attempt decides: whom it waits for, what follows from an outcome, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from eosframework.errors import (
    ClusterUnreachable,
    DataRejected,
    InstanceFenced,
    OutcomeUnknown,
    RecordFailed,
    Retriable,
    RunError,
    TaskFenced,
    TransactionAborted,
    TransactionFatal,
)
from eosframework.records import TopicPartition
from eosframework.topology.dsl.declarations import dead_letter
from eosframework.transactions.ports import Output
from tests.unit.spark.backfill.attempts import P0, World, progress, topology

ALL = list(range(100))


def test_progress_that_is_gone_ends_the_attempt() -> None:
    world = World()
    world.broker.commit_faults = [(None, True), (OutcomeUnknown("x"), False)]
    world.broker.produce_fault = lambda output: (
        world.journal.empty() if b":7}" in (output[1] or b"") else None
    )
    with pytest.raises(RunError, match=r"is missing in the control topic.* another job name"):
        world.run()


def test_all_rows_become_outputs_and_the_positions_the_end_of_the_range() -> None:
    world = World()
    done = world.run(ends={P0: 101})
    assert world.numbers() == ALL
    assert (done.complete, done.records, done.positions) == (True, 100, {"in/0": 101})
    assert done.metadata == "eos1;10;99"
    assert world.committed == done


def test_a_task_without_rows_is_complete_at_the_end_of_its_range() -> None:
    world = World(end=0)
    done = world.run(ends={P0: 7})
    assert (done.complete, done.records, done.positions) == (True, 0, {"in/0": 7})


def test_a_complete_task_is_left_alone() -> None:
    world = World()
    done = world.run()
    visible = list(world.broker.visible)
    assert world.run() == done
    assert world.run(1) == done
    assert world.broker.visible == visible


def test_what_is_committed_already_is_passed_over() -> None:
    world = World()
    world.write(positions={"in/0": 42}, metadata="eos1;7;41", records=42)
    done = world.run()
    assert world.numbers() == ALL[42:]
    assert done.records == 100
    assert done.metadata == "eos1;13;99"


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("which", [0, 1, 5, 10])
def test_an_unknown_outcome_is_told_by_the_progress(which: int, is_committed: bool) -> None:
    world = World()
    faults: list[Any] = [(None, True)] * which
    world.broker.commit_faults = [*faults, (OutcomeUnknown("x"), is_committed)]
    assert world.run().records == 100
    assert world.numbers() == ALL
    assert world.inits() == 2


@pytest.mark.parametrize("which", [0, 4, 10])
def test_an_aborted_transaction_is_run_again(which: int) -> None:
    world = World()
    faults: list[Any] = [(None, True)] * which
    world.broker.commit_faults = [*faults, (TransactionAborted("x"), False)]
    assert world.run().records == 100
    assert world.numbers() == ALL


def test_a_refused_record_goes_the_way_of_on_error_and_no_other() -> None:
    world = World(topology(on_error=dead_letter("dead")))
    world.broker.produce_fault = lambda output: (
        DataRejected("too large") if output[0] == "out" and b":13}" in (output[1] or b"") else None
    )
    done = world.run()
    assert world.numbers() == [n for n in ALL if n != 13]
    assert world.numbers("dead") == [13]
    assert (done.records, done.dead_letters) == (100, 1)


def test_a_record_that_fails_ends_the_attempt_behind_all_before_it() -> None:
    def refuse(value: dict[str, int]) -> dict[str, int]:
        if value["n"] == 47:
            raise ValueError("not 47")
        return value

    world = World(topology(refuse))
    with pytest.raises(RecordFailed, match="@47 failed"):
        world.run()
    assert world.numbers() == ALL[:47]
    found = world.committed
    assert found is not None
    assert (found.ended, found.complete, found.positions) == (True, False, {"in/0": 47})


def test_nobody_waits_for_an_attempt_that_said_that_it_ended() -> None:
    world = World()
    world.write(ended=True)
    assert world.run(1).complete
    assert world.clock.slept == []


def test_skipped_records_count_once_although_they_are_run_again() -> None:
    def refuse(value: dict[str, int]) -> dict[str, int]:
        if value["n"] % 10 == 3:
            raise ValueError("no")
        return value

    world = World(topology(refuse, on_error="skip"))
    world.broker.commit_faults = [(None, True), (TransactionAborted("x"), False)] * 3
    done = world.run()
    assert (done.skipped, done.records) == (10, 100)


def test_a_fenced_attempt_ends_without_taking_the_id_again() -> None:
    world = World()
    world.broker.commit_faults = [(None, True), (TaskFenced("x"), False)]
    with pytest.raises(InstanceFenced, match="was taken over by another attempt"):
        world.run()
    assert world.inits() == 1
    found = world.committed
    assert found is not None
    assert not found.ended


def test_an_attempt_in_doubt_does_not_take_the_task_from_its_successor() -> None:
    world = World()
    world.broker.commit_faults = [(None, True), (OutcomeUnknown("x"), False)]
    world.broker.produce_fault = lambda output: (
        world.hang(attempt="successor") if b":7}" in (output[1] or b"") else None
    )
    with pytest.raises(InstanceFenced, match=r"\(successor\)"):
        world.run()
    assert world.inits() == 1


def test_what_was_left_open_before_the_task_was_taken_is_no_successor() -> None:
    world = World()
    world.hang(attempt="ended by the init")
    world.broker.commit_faults = [(OutcomeUnknown("x"), False)]
    assert world.run().records == 100


def test_an_expired_transaction_is_run_again_if_no_successor_shows() -> None:
    world = World()

    def stand_still(output: Output) -> None:
        if b":33}" in (output[1] or b""):
            world.broker.produce_fault = lambda output: None
            world.broker.commit_faults = [(TaskFenced("x"), False)]
            world.clock.now += 40

    world.broker.produce_fault = stand_still
    assert world.run().records == 100
    assert world.numbers() == ALL
    assert world.inits() == 2


def test_an_attempt_whose_brokers_stay_away_gives_up() -> None:
    world = World()
    world.broker.commit_faults = [(None, True), (OutcomeUnknown("x"), False)]
    world.broker.recycle_faults = [Retriable("away")] * 1000
    with pytest.raises(ClusterUnreachable, match="no transaction was committed for 120 s"):
        world.run()
    assert 120 <= world.clock.now < 130


def test_a_fatal_error_names_its_cause() -> None:
    world = World()
    world.broker.commit_faults = [(TransactionFatal("grant Write"), False)]
    with pytest.raises(RunError, match="grant Write"):
        world.run()


def test_a_later_attempt_waits_as_long_as_the_first_one_shows_signs_of_life() -> None:
    world = World()
    world.clock.events = {at: world.write for at in (10.0, 25.0, 40.0)}
    assert world.run(1).complete
    assert 60 <= world.clock.now < 63


def test_of_one_run_the_first_number_is_no_proof_that_nobody_else_is_at_work() -> None:
    for run, waited_seconds in (("ab12", 20), ("cd34", 0)):
        world = World()
        world.write(attempt="host/1/0/f00d@ab12")
        assert world.run(0, run=run).complete
        assert waited_seconds <= world.clock.now < waited_seconds + 3


def test_a_later_attempt_returns_when_the_first_one_is_done() -> None:
    world = World()
    done = progress(complete=True, positions={"in/0": 100})
    world.clock.events = {12.0: lambda: world.write(complete=True, positions={"in/0": 100})}
    assert world.run(1) == done
    assert world.inits() == 0


def test_a_sign_of_life_counts_before_it_is_decided() -> None:
    world = World()
    signs = (10.0, 25.0, 30.0)
    world.clock.events = dict.fromkeys(signs, world.hang)
    assert world.run(1).complete
    assert 50 <= world.clock.now < 53


def test_rows_that_end_before_the_range_are_refused() -> None:
    world = World()
    world.unread = True
    with pytest.raises(RunError, match=r"there are records left in in\[0\] 60 to 100"):
        world.run(rows=world.rows(0, 60))
    found = world.committed
    assert found is not None
    assert not found.complete
    world.unread = False
    assert world.run(1).complete
    assert world.numbers() == ALL


def test_rows_of_another_task_are_refused() -> None:
    world = World()
    with pytest.raises(RunError, match=r"a row of in\[1\] came to task app:backfill.job.numbers:0"):
        world.run(rows=[(TopicPartition("in", 1), world.rows()[0][1])])


def test_rows_behind_the_range_are_refused() -> None:
    world = World()
    with pytest.raises(RunError, match="range ends before offset 7"):
        world.run(ends={P0: 7})


def test_records_to_own_topics_tell_which_task_wrote_them() -> None:
    world = World()
    world.run(own_topics=frozenset({"out"}))
    headers = [output[7] for output in world.broker.visible if output[0] == "out"]
    assert headers == [[("__eos.backfill.writer", b"numbers/0")]] * 100
