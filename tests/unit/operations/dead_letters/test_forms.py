"""A dead letter has the first form that fits its topic, and its record is found again by it."""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.engine.failures.dead_letter_forms import Form, unpacked
from eosframework.engine.failures.failure_handler import Site, dead_letter
from eosframework.operations.audit.output_comparison import digest_of
from eosframework.operations.dead_letters import DeadLetter
from tests.unit.engine.messages import DEAD, Sent, Written

NOISE = random.Random(1).randbytes(20_000)
HEADERS = [("h", b"1"), ("h", None)]


def letter_of(record: Sent, most_bytes: int | None) -> DeadLetter:
    output = dead_letter(Site("step", DEAD), record, ValueError("no"), 5000, most_bytes)
    letter = DeadLetter.parse(Written(output, 7))
    assert letter is not None
    return letter


def least(record: Sent, form: Form) -> int:
    """Return the smallest limit at which a dead letter has this form."""
    low, high = 0, 100_000
    while low < high:
        middle = (low + high) // 2
        found = letter_of(record, middle).form
        low, high = (
            (low, middle) if [*Form].index(found) <= [*Form].index(form) else (middle + 1, high)
        )
    return low


def test_each_form_begins_where_the_one_before_it_does_not_fit() -> None:
    record = Sent(b"x" * 10_000 + NOISE, 11, b"key", 1234, HEADERS)
    for form, following in ((Form.WHOLE, Form.GZIP), (Form.GZIP, Form.PLACE)):
        limit = least(record, form)
        assert letter_of(record, limit + 1).form is letter_of(record, limit).form is form
        assert letter_of(record, limit - 1).form is following
    assert letter_of(record, least(record, Form.PLACE) - 1).form is Form.BARE
    assert letter_of(record, None).form is Form.WHOLE


@pytest.mark.parametrize("limit", [None, 26_000, 8_000, 0])
@pytest.mark.parametrize("value", [b"x" * 30_000, NOISE * 2, b"", None])
@pytest.mark.parametrize("headers", [HEADERS, [("big", NOISE)], None])
def test_a_record_comes_back_from_every_form(
    limit: int | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None
) -> None:
    record = Sent(value, 11, b"key", 1234, headers)
    letter = letter_of(record, limit)
    whole = letter.restored(record)
    assert whole is not None
    assert (whole.key, whole.value, whole.headers) == (b"key", value, headers or [])
    other = Sent(b"other", 11, b"key", 1234, headers)
    if letter.left_out:
        assert letter.restored(None) is letter.restored(other) is None
        assert letter.value is None
    else:
        assert letter.restored(None) == whole


@given(st.sampled_from([None, 26_000, 8_000, 0]), st.binary(), st.booleans())
def test_an_audit_takes_all_forms_of_a_dead_letter_for_the_same_and_no_other(
    limit: int | None, value: bytes, is_large: bool
) -> None:
    value += NOISE * 2 * is_large

    def digest(value: bytes, key: bytes, limit: int | None, offset: int = 11) -> bytes:
        record = Sent(value, offset, key, 1234, HEADERS)
        output = dead_letter(Site("step", DEAD), record, ValueError("no"), 5000, limit)
        return digest_of(output[0], output[2], output[1], output[6], output[7])

    one = digest(value, b"k", None)
    assert digest(value, b"k", limit) == one
    assert one not in (
        digest(value + b"1", b"k", limit),
        digest(value, b"l", limit),
        digest(value, b"k", limit, offset=12),
    )


def test_a_compressed_value_never_unpacks_to_more_than_it_says() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    assert unpacked(bomb, 10_000_000) == bytes(10_000_000)
    assert unpacked(bomb, 9_999_999) is unpacked(bomb, 10_000_001) is None
    assert unpacked(bomb[:100], 10_000_000) is unpacked(b"no gzip", 7) is None


def test_a_record_that_came_with_a_form_is_whole() -> None:
    forged = [("__eos.errors.form", b"gzip"), ("__eos.errors.size", b"9" * 5000)]
    letter = letter_of(Sent(b"1", headers_=forged), None)
    assert (letter.form, letter.value) == (Form.WHOLE, b"1")
