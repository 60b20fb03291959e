"""How a user says from where to where an audit looks."""

from __future__ import annotations

import pytest

from eosframework.errors import ConfigurationError
from eosframework.operations.audit.audit_verdict import Bound, Scope
from eosframework.records import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Bound("beginning")),
        ("end", Bound("end")),
        ("1200", Bound("1200", offset=1200)),
        ("1970-01-01T00:00:01Z", Bound("1970-01-01T00:00:01Z", moment=1000)),
        ("1970-01-01T01:00:01+01:00", Bound("1970-01-01T01:00:01+01:00", moment=1000)),
        ("1970-01-02", Bound("1970-01-02", moment=86_400_000)),
        ("a.b-c[1]@5", Bound("a.b-c[1]@5", places={TopicPartition("a.b-c", 1): 5})),
        (
            "a[0]@5, a[1]@6",
            Bound("a[0]@5, a[1]@6", places={TopicPartition("a", 0): 5, TopicPartition("a", 1): 6}),
        ),
    ],
)
def test_a_bound_is_read(text: str, expected: Bound) -> None:
    assert Bound.parse(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "a[0]@", "a[0]@5,a[0]@6", "2026-13-01"])
def test_what_is_no_bound_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected beginning, end, a time"):
        Bound.parse(text)


@pytest.mark.parametrize(("start", "end"), [("5", "4"), ("2026-01-02", "2026-01-01T23:59")])
def test_a_scope_that_ends_before_it_begins_is_refused(start: str, end: str) -> None:
    with pytest.raises(ConfigurationError, match=f"--from {start} is after --to {end}"):
        Scope(Bound.parse(start), Bound.parse(end))


def test_only_the_default_is_everything() -> None:
    assert Scope().is_whole
    assert not Scope(Bound.parse("0")).is_whole
