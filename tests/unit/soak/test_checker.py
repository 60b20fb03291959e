"""Each kind of damage to a history is found; an undamaged one is clean."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.soak.checker import Kind, check
from tests.soak.effects import HOSTILE, Total, expected_effects, expected_totals
from tests.soak.history import (
    History,
    Input,
    OffsetWritten,
    Outcome,
    Producer,
    Seen,
    Written,
)

PARTITIONS = 2
INPUTS = 40
BATCH = 5
PROCESS = "p"


class Log:
    """Writes a history as workers would: batches of inputs, each in one transaction."""

    def __init__(self) -> None:
        self.inputs = {p: list(range(p, INPUTS, PARTITIONS)) for p in range(PARTITIONS)}
        self.all: list[Seen] = []
        self.written: list[Written] = []
        self.offsets: list[OffsetWritten] = []
        self.calls: list[Input] = []
        self._ends: dict[tuple[str, int], int] = {}

    def transaction(self, partition: int, first: int, epoch: int, outcome: Outcome) -> None:
        producer = Producer(100 + partition, epoch)
        numbers = self.inputs[partition][first : first + BATCH]
        totals = expected_totals(self.inputs[partition])
        for offset, number in enumerate(numbers, first):
            place = Input(partition, offset)
            self.calls.append(place)
            for index, effect in enumerate(expected_effects(number)):
                lane = effect.side, sum(effect.key) % PARTITIONS
                at = self._ends.get(lane, 0)
                self._ends[lane] = at + 1
                attempt = f"{PROCESS}.{len(self.calls)}"
                self.all.append(Seen(*lane, at, place, index, attempt, totals[offset]))
                self.written.append(Written(*lane, at, at, producer, outcome))
        for lane in self._ends:
            self._ends[lane] += 1  # A marker.
        end = Input(partition, first + len(numbers))
        self.offsets.append(OffsetWritten(end, producer, outcome))

    def history(self) -> History:
        decided = {(w.side, w.partition, w.first): w.outcome for w in self.written}
        seen = [s for s in self.all if decided[s.side, s.partition, s.offset] is Outcome.COMMITTED]
        return History(
            inputs=self.inputs,
            committed=seen,
            concurrent=list(seen),
            uncommitted=self.all,
            written=self.written,
            offsets_written=self.offsets,
            polled=[o.input for o in self.offsets if o.outcome is Outcome.COMMITTED],
            journals={PROCESS: self.calls},
        )


def recorded(*, aborted: Sequence[int] = ()) -> History:
    """A clean history; the batches at these offsets of partition 0 were aborted once."""
    log = Log()
    epoch = 0
    for first in range(0, INPUTS // PARTITIONS, BATCH):
        for partition in range(PARTITIONS):
            if partition == 0 and first in aborted:
                log.transaction(partition, first, epoch, Outcome.ABORTED)
                epoch += 1
            log.transaction(partition, first, epoch if partition == 0 else 0, Outcome.COMMITTED)
    return log.history()


def with_a_hostile_input() -> tuple[History, Input]:
    """A clean history in which one input is a dead letter."""
    log = Log()
    log.inputs[0][7] = HOSTILE
    for first in range(0, INPUTS // PARTITIONS, BATCH):
        for partition in range(PARTITIONS):
            log.transaction(partition, first, 0, Outcome.COMMITTED)
    place = Input(0, 7)
    return replace(log.history(), dead=[place]), place


def found(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history)}


def everywhere(history: History, change: Callable[[list[Seen]], Any]) -> History:
    """Change what both readers have, as a topic is for all of them."""
    committed, concurrent = list(history.committed), list(history.concurrent)
    change(committed)
    change(concurrent)
    return replace(history, committed=committed, concurrent=concurrent)


def decide(history: History, seen: Sequence[Seen], outcome: Outcome) -> History:
    """Let the log say that these outputs were decided otherwise."""
    places = {(s.side, s.partition, s.offset) for s in seen}
    return replace(
        history,
        written=[
            w._replace(outcome=outcome) if (w.side, w.partition, w.first) in places else w
            for w in history.written
        ],
    )


def test_an_undamaged_history_is_clean() -> None:
    assert check(recorded()) == []


def test_aborted_transactions_that_were_repeated_are_clean() -> None:
    assert check(recorded(aborted=[0, 10])) == []


def test_an_input_that_is_no_number_has_one_dead_letter_and_no_other_has_any() -> None:
    history, place = with_a_hostile_input()
    assert check(history) == []
    assert found(replace(history, dead=[])) == {Kind.LOST}
    assert found(replace(history, dead=[place, place])) == {Kind.DUPLICATE}
    assert found(replace(history, dead=[place, Input(0, 8)])) == {Kind.UNEXPECTED}
    assert found(replace(history, dead=[place, Input(0, 99)])) == {Kind.UNEXPECTED}


def test_an_output_without_a_commit_marker_is_an_aborted_read() -> None:
    history = recorded()
    damaged = decide(history, [history.committed[7]], Outcome.ABORTED)
    assert Kind.ABORTED_READ in found(damaged)


def test_what_only_the_concurrent_reader_got_of_an_aborted_transaction_is_an_aborted_read() -> None:
    history = recorded(aborted=[5])
    aborted = next(s for s in history.uncommitted if s not in history.committed)
    damaged = replace(history, concurrent=[*history.concurrent, aborted])
    assert found(damaged) == {Kind.ABORTED_READ, Kind.DISAGREEMENT}


def test_a_total_that_is_ahead_of_its_inputs_is_wrong_state() -> None:
    def change(seen: list[Seen]) -> None:
        seen[7] = seen[7]._replace(total=Total(seen[7].total.count + 1, seen[7].total.sum))

    assert Kind.WRONG_STATE in found(everywhere(recorded(), change))


def test_a_call_that_its_process_gave_up_is_an_aborted_read_even_if_nothing_else_shows() -> None:
    """A late record took the place of the one that was meant: counts and markers are right."""
    history = recorded()
    place = history.committed[7].input
    journal = [*history.journals[PROCESS], place]
    damaged = replace(history, journals={PROCESS: journal})
    assert found(damaged) == {Kind.ABORTED_READ}


def test_an_output_that_a_later_owner_wrote_again_is_an_aborted_read() -> None:
    """A late commit made the aborted transaction visible, and its repetition was aborted."""
    history = recorded(aborted=[5])
    first_try = [s for s in history.uncommitted if s not in history.committed]
    again = [s for s in history.committed if s.input in {f.input for f in first_try}]
    damaged = decide(decide(history, first_try, Outcome.COMMITTED), again, Outcome.ABORTED)
    damaged = everywhere(damaged, lambda seen: [seen.remove(s) for s in again])
    damaged = everywhere(damaged, lambda seen: seen.extend(first_try))
    assert Kind.ABORTED_READ in found(damaged)


def test_a_missing_output_is_a_lost_write_and_its_call_torn() -> None:
    history = recorded()
    gone = history.committed[7]
    damaged = everywhere(history, lambda seen: seen.remove(gone))
    damaged = decide(damaged, [gone], Outcome.ABORTED)
    assert found(damaged) == {Kind.LOST, Kind.TORN}


def test_an_input_without_any_output_is_lost() -> None:
    history = recorded()
    place = history.committed[7].input
    gone = [s for s in history.committed if s.input == place]
    damaged = everywhere(history, lambda seen: [seen.remove(s) for s in gone])
    damaged = decide(damaged, gone, Outcome.ABORTED)
    assert found(damaged) == {Kind.LOST}


def test_an_output_that_is_there_twice_is_a_duplicate() -> None:
    history = recorded(aborted=[5])
    first_try = [s for s in history.uncommitted if s not in history.committed]
    damaged = decide(history, first_try, Outcome.COMMITTED)
    damaged = everywhere(damaged, lambda seen: seen.extend(first_try))
    damaged = everywhere(damaged, lambda seen: seen.sort(key=lambda s: (s.lane, s.offset)))
    assert {Kind.DUPLICATE, Kind.ABORTED_READ} <= found(damaged)


def test_outputs_whose_offset_was_not_committed_are_torn() -> None:
    history = recorded()
    last = history.offsets_written[-1]
    offsets = [*history.offsets_written[:-1], last._replace(outcome=Outcome.ABORTED)]
    damaged = replace(history, offsets_written=offsets, polled=history.polled[:-1])
    assert found(damaged) == {Kind.TORN}


def test_an_offset_that_another_owner_committed_than_the_outputs_is_torn() -> None:
    history = recorded()
    offsets = [
        o._replace(producer=Producer(o.producer.id, 9)) if i == 4 else o
        for i, o in enumerate(history.offsets_written)
    ]
    assert found(replace(history, offsets_written=offsets)) == {Kind.TORN}


def test_outputs_of_a_partition_in_another_order_are_an_order_violation() -> None:
    history = recorded()
    lane, source = history.committed[0].lane, history.committed[0].input.partition
    first, second = [
        n for n, s in enumerate(history.committed) if s.lane == lane and s.input.partition == source
    ][:2]

    def swap(seen: list[Seen]) -> None:
        seen[first], seen[second] = (
            seen[second]._replace(offset=seen[first].offset),
            seen[first]._replace(offset=seen[second].offset),
        )

    damaged = everywhere(history, swap)
    uncommitted = list(history.uncommitted)
    swap(uncommitted)
    assert found(replace(damaged, uncommitted=uncommitted)) == {Kind.REORDERED}


def test_an_offset_that_goes_back_in_the_log_is_found() -> None:
    history = recorded()
    late = history.offsets_written[2]
    offsets = [*history.offsets_written[:6], late, *history.offsets_written[6:]]
    assert Kind.WENT_BACK in found(replace(history, offsets_written=offsets))


def test_an_offset_that_goes_back_for_somebody_who_asks_is_found() -> None:
    history = recorded()
    polled = [*history.polled[:6], history.polled[2], *history.polled[6:]]
    assert found(replace(history, polled=polled)) == {Kind.WENT_BACK}


def test_a_transaction_without_a_marker_hangs() -> None:
    history = recorded(aborted=[5])
    first_try = [s for s in history.uncommitted if s not in history.committed]
    assert found(decide(history, first_try, Outcome.OPEN)) == {Kind.HANGING}


def test_a_transaction_that_its_coordinator_says_is_open_hangs() -> None:
    assert found(replace(recorded(), open_transactional_ids=["app:a:0"])) == {Kind.HANGING}


def test_an_offset_without_a_marker_hangs() -> None:
    history = recorded()
    late = OffsetWritten(Input(0, 3), Producer(100, 0), Outcome.OPEN)
    damaged = replace(history, offsets_written=[*history.offsets_written, late])
    assert found(damaged) == {Kind.HANGING}


@pytest.mark.parametrize("seed", range(5))
def test_readers_that_got_different_records_disagree(seed: int) -> None:
    history = recorded()
    concurrent = list(history.concurrent)
    del concurrent[random.Random(seed).randrange(len(concurrent))]
    assert found(replace(history, concurrent=concurrent)) == {Kind.DISAGREEMENT}


def test_an_output_of_no_input_is_unexpected() -> None:
    history = recorded()
    strange = history.committed[3]._replace(offset=900, input=Input(0, 999))
    damaged = everywhere(history, lambda seen: seen.append(strange))
    assert Kind.UNEXPECTED in found(damaged)


def test_an_output_of_a_call_that_nobody_made_is_unexpected() -> None:
    history = recorded()
    assert found(replace(history, journals={})) == {Kind.UNEXPECTED}
