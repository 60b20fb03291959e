from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.txnid import (
    InternalTopic,
    TopicKind,
    changelog_topic,
    control_topic,
    metric_name,
    ownership_topic,
    repartition_topic,
    replay_topic,
    retry_topic,
    rows_topic,
    tables_group,
)
from eosframework.txnid.names import APPLICATION

words = st.sampled_from(
    ["a", "b", "control", "ownership", "changelog", "rows", "retry", "10s", "0", "x.10s"]
)
applications = st.one_of(
    st.from_regex(rf"\A{APPLICATION}\Z"),
    st.lists(words, min_size=1, max_size=4).map("-".join),
)
parts = st.one_of(st.text(alphabet="ab0_.", min_size=1, max_size=6), words)
delays = st.sampled_from(["10s", "1m", "1500ms", "2h", "7d"])
ONE_EACH = [TopicKind.CONTROL, TopicKind.OWNERSHIP]
topics = st.one_of(
    st.builds(InternalTopic, applications, st.sampled_from(ONE_EACH)),
    st.builds(
        InternalTopic,
        applications,
        st.sampled_from([k for k in TopicKind if k not in (*ONE_EACH, TopicKind.RETRY)]),
        parts,
    ),
    st.builds(InternalTopic, applications, st.just(TopicKind.RETRY), parts, delays),
)


@given(topics)
def test_the_name_of_an_internal_topic_parses_back_into_its_parts(topic: InternalTopic) -> None:
    assert InternalTopic.parse(str(topic)) == topic


@given(topics, topics)
def test_two_internal_topics_never_share_a_name(one: InternalTopic, other: InternalTopic) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(st.one_of(st.text(max_size=30), st.lists(words, max_size=5).map("-".join)))
def test_whatever_parses_is_written_the_same_way(text: str) -> None:
    topic = InternalTopic.parse(text)
    assert topic is None or str(topic) == text


@pytest.mark.parametrize(
    ("name", "make", "parts"),
    [
        ("shop-eu-control", control_topic, []),
        ("shop-eu-ownership", ownership_topic, []),
        ("shop-eu-totals.count-changelog", changelog_topic, ["totals.count"]),
        ("shop-eu-totals-repartition", repartition_topic, ["totals"]),
        ("shop-eu-late-rows", rows_topic, ["late"]),
        ("shop-eu-orders.10s-retry", retry_topic, ["orders", "10s"]),
        ("shop-eu-orders-replay", replay_topic, ["orders"]),
    ],
)
def test_internal_topics_end_as_tools_for_kafka_streams_know_them(
    name: str, make: Callable[..., str], parts: list[str]
) -> None:
    assert make("shop-eu", *parts) == name


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            "a-b",
            "control",
            "-control",
            "a-changelog",
            "a--changelog",
            "a-b-retry",
            "A-b-rows",
        ),
        "a.b.changelog",
        "a-b-changelogs",
        "a-b-rows\n",
        "a-b.0s-retry",
    ],
)
def test_another_name_is_no_internal_topic(text: str) -> None:
    assert InternalTopic.parse(text) is None


@given(applications, applications)
def test_no_application_has_the_group_of_anothers_table_writers(one: str, other: str) -> None:
    assert tables_group(one) != other
    assert (tables_group(one) == tables_group(other)) == (one == other)


def test_dots_and_underscores_are_the_same_in_metrics() -> None:
    assert metric_name("a.b_c") == metric_name("a_b.c") == "a_b_c"
