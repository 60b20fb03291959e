"""The audit's comparison on constructed histories: each kind of damage, and none."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from eosframework.operations.audit import Ledger, Verdict, compare
from eosframework.operations.audit.output_comparison import digest_of
from eosframework.records import TopicPartition

Line = tuple[str, int, int, str]
"""Topic, partition, offset, content; of an expected output the place is its input's."""


def ledger(lines: Sequence[Line]) -> Ledger:
    made = Ledger()
    for topic, partition, offset, content in lines:
        digest = digest_of("out", None, content.encode(), 0, None)
        made.add(TopicPartition(topic, partition), offset, digest)
    return made


def audit(expected: Sequence[Line], found: Sequence[Line], **more: object) -> Verdict:
    records = len({line[:3] for line in expected})
    return compare(ledger(expected), ledger(found), input_records=records, **more)  # pyright: ignore[reportArgumentType]


EXPECTED: list[Line] = [("in", 0, offset, f"v{offset}") for offset in range(10)]
FOUND: list[Line] = [("out", 0, offset, f"v{offset}") for offset in range(10)]


def faults(verdict: Verdict) -> dict[str, int]:
    return {
        name: n for name, n in verdict.counts().items() if n and name not in ("input", "output")
    }


def test_an_exact_history_is_clean() -> None:
    verdict = audit(EXPECTED, FOUND)
    assert verdict.clean
    assert verdict.counts() == {
        "input": 10,
        "output": 10,
        "lost": 0,
        "duplicated": 0,
        "reordered": 0,
        "torn": 0,
    }


def test_a_missing_output_is_lost() -> None:
    verdict = audit(EXPECTED, FOUND[:4] + FOUND[5:])
    assert faults(verdict) == {"lost": 1}
    assert "in[0]@4" in verdict.details[0].text


def test_a_repeated_output_is_duplicated_and_names_the_first() -> None:
    verdict = audit(EXPECTED, [*FOUND, ("out", 0, 10, "v3")])
    assert faults(verdict) == {"duplicated": 1}
    assert verdict.details[0].text == "out[0]@10 repeats out[0]@3, the output of in[0]@3"


def test_an_output_that_no_input_explains_is_duplicated() -> None:
    verdict = audit(EXPECTED, [*FOUND, ("out", 0, 10, "stranger")])
    assert faults(verdict) == {"duplicated": 1}
    assert "out[0]@10 comes from no input record" in verdict.details[0].text


def test_an_unexplained_output_says_nothing_once_the_input_was_trimmed() -> None:
    verdict = audit(EXPECTED, [("out", 0, 0, "of a trimmed record"), *FOUND], input_trimmed=True)
    assert verdict.clean
    assert verdict.untraced == 1


def test_a_copy_is_duplicated_also_where_the_input_was_trimmed() -> None:
    verdict = audit(EXPECTED, [*FOUND, ("out", 0, 10, "v3")], input_trimmed=True)
    assert faults(verdict) == {"duplicated": 1}


def test_outputs_of_one_partition_in_another_order_are_reordered() -> None:
    swapped = [*FOUND[:3], ("out", 0, 3, "v4"), ("out", 0, 4, "v3"), *FOUND[5:]]
    verdict = audit(EXPECTED, swapped)
    assert faults(verdict) == {"reordered": 1}
    assert "out[0]@4" in verdict.details[0].text
    assert "in[0]@4" in verdict.details[0].text


def test_order_between_partitions_is_free() -> None:
    two_inputs = [*EXPECTED, *(("in", 1, n, f"w{n}") for n in range(10))]
    backwards = [("out", 1, n, f"w{n}") for n in range(10)]
    assert audit(two_inputs, [*backwards, *FOUND]).clean
    spread = [("out", line[2] % 2, line[2], line[3]) for line in FOUND]
    odd_first = [line for line in spread if line[1]] + [line for line in spread if not line[1]]
    assert audit(EXPECTED, odd_first).clean


def test_a_record_with_part_of_its_outputs_is_torn() -> None:
    both = [("in", 0, n, f"{kind}{n}") for n in range(5) for kind in "ab"]
    found = [("out", 0, i, line[3]) for i, line in enumerate(both) if line[3] not in ("a2", "b3")]
    verdict = audit(both, found)
    assert faults(verdict) == {"lost": 2, "torn": 2}


def test_a_record_without_any_of_its_outputs_is_lost_not_torn() -> None:
    both = [("in", 0, n, f"{kind}{n}") for n in range(5) for kind in "ab"]
    found = [("out", 0, i, line[3]) for i, line in enumerate(both) if line[2] != 2]
    assert faults(audit(both, found)) == {"lost": 2}


def test_an_output_whose_position_is_not_committed_is_torn() -> None:
    ahead = ledger([("in", 0, 10, "v10"), ("in", 0, 11, "v11")])
    verdict = audit(EXPECTED, [*FOUND, ("out", 0, 10, "v10")], ahead=ahead)
    assert faults(verdict) == {"torn": 1}
    assert "in[0]@10 is not committed" in verdict.details[0].text


def test_records_processed_during_the_audit_may_be_there_or_not() -> None:
    assert audit(EXPECTED, FOUND[:7], required=6).clean
    assert audit(EXPECTED, FOUND, required=6).clean
    assert faults(audit(EXPECTED, FOUND[:5], required=6)) == {"lost": 1}


def test_equal_outputs_are_counted_and_not_held_against_the_order() -> None:
    expected = [("in", n % 2, n, "same") for n in range(6)]
    found = [("out", 0, n, "same") for n in range(6)]
    assert audit(expected, found).clean
    assert faults(audit(expected, found[1:])) == {"lost": 1}
    assert faults(audit(expected, [*found, ("out", 0, 6, "same")])) == {"duplicated": 1}


@given(st.randoms(use_true_random=False), st.integers(1, 200))
@settings(max_examples=40, deadline=None)
def test_every_loss_and_every_copy_is_counted(chance: random.Random, size: int) -> None:
    expected = [("in", n % 3, n, f"v{n}") for n in range(size)]
    kept = [line for line in expected if chance.random() > 0.1]
    found: list[Line] = []
    copies = 0
    for line in kept:
        again = chance.random() < 0.1
        copies += again
        found += [("out", line[1], len(found) + i, line[3]) for i in range(1 + again)]
    verdict = audit(expected, found)
    assert (verdict.lost, verdict.duplicated) == (size - len(kept), copies)
    assert verdict.reordered == 0


def test_digests_tell_every_part_of_a_record_apart() -> None:
    records = [
        ("t", b"k", b"v", 1, [("h", b"x")]),
        ("u", b"k", b"v", 1, [("h", b"x")]),
        ("t", b"kv", b"", 1, [("h", b"x")]),
        ("t", None, b"kv", 1, [("h", b"x")]),
        ("t", b"", b"kv", 1, [("h", b"x")]),
        ("t", b"k", None, 1, [("h", b"x")]),
        ("t", b"k", b"v", 2, [("h", b"x")]),
        ("t", b"k", b"v", 1, [("h", None)]),
        ("t", b"k", b"v", 1, [("h", b"x"), ("h", b"x")]),
        ("t", b"k", b"v", 1, None),
    ]
    assert len({digest_of(*record) for record in records}) == len(records)


def test_the_text_of_a_dead_letters_error_does_not_count() -> None:
    one = digest_of(
        "t",
        None,
        b"v",
        1,
        [("__streams.errors.exception", b"at 0x7f01"), ("__streams.errors.offset", b"1")],
    )
    other = digest_of(
        "t",
        None,
        b"v",
        1,
        [("__streams.errors.exception", b"at 0x7f02"), ("__streams.errors.offset", b"1")],
    )
    assert one == other


def test_no_headers_and_empty_headers_are_the_same() -> None:
    assert digest_of("t", None, b"v", 1, None) == digest_of("t", None, b"v", 1, [])
