from dataclasses import replace

import pytest

from eosframework.application.control_topic import ControlState, interpret
from eosframework.application.position_changes import PositionRequest
from eosframework.application.start_checks import Facts, new_entries, refuse, retention_note
from eosframework.config import Settings
from eosframework.errors import ConfigurationError, StartRefused, TopologyError
from eosframework.kafka.admin.metadata import GroupDescription, SizeLimits, TopicDescription
from eosframework.records import Position
from tests.support.applications.graphs import graph_of

GRAPH = graph_of("flights", {"late": (["raw"], ["late", "dead"])})
RAW = TopicDescription(exists=True, topic_id="id-1", partitions=2, max_message_bytes=1_000_000)
HEALTHY = Facts(
    cluster_id="cluster-1",
    topics={
        "raw": RAW,
        "late": TopicDescription(True, "id-2", 4),
        "dead": TopicDescription(True, "id-3", 1),
    },
    control=ControlState(),
    committed=(Position("raw", 0, None), Position("raw", 1, None)),
    brokers={1: {"transaction.max.timeout.ms": "900000", "offsets.retention.minutes": "10080"}},
)


def registered_after_first_start() -> ControlState:
    entries = new_entries(GRAPH, HEALTHY)
    entries["committed/late/raw/1"] = {"topic_id": "id-1"}
    return interpret(entries)


KNOWN = replace(
    HEALTHY,
    control=registered_after_first_start(),
    committed=(Position("raw", 0, None), Position("raw", 1, 17, "eos1;1;0")),
)


def with_topics(facts: Facts, **topics: TopicDescription) -> Facts:
    return replace(facts, topics={**facts.topics, **topics})


def refusal(facts: Facts, settings: Settings | None = None) -> str:
    with pytest.raises(StartRefused) as caught:
        refuse(GRAPH, settings or Settings(), facts)
    return str(caught.value)


@pytest.mark.parametrize("facts", [HEALTHY, KNOWN], ids=["first start", "later start"])
def test_a_cluster_that_fits_is_not_refused(facts: Facts):
    refuse(GRAPH, Settings(), facts)


def test_an_application_of_spark_sinks_is_refused():
    sinks = {"sink/delays": {}, "sink/delays/shard/0": {}, "sink/hours": {}}
    told = refusal(replace(HEALTHY, control=interpret(sinks)))
    assert "application 'flights' is that of Spark sinks on this cluster (delays, hours)" in told
    assert "Give this topology another name with application:" in told


def test_everything_is_registered_once():
    written = {"written/late", "written/dead"}
    expected = {"application", "topic/raw", "topology"} | written
    assert set(new_entries(GRAPH, HEALTHY)) == expected
    assert new_entries(GRAPH, KNOWN) == {}


def test_a_missing_source_is_named_and_apply_is_not_said_to_create_it():
    message = refusal(with_topics(HEALTHY, raw=TopicDescription(exists=False)))
    assert "source topic raw does not exist" in message
    assert "eosframework topics create raw --partitions N" in message
    assert "apply" not in message


def test_missing_outputs_are_all_named_with_the_command_that_creates_them():
    message = refusal(
        with_topics(HEALTHY, late=TopicDescription(False), dead=TopicDescription(False))
    )
    assert "topics dead, late do not exist" in message
    assert "eosframework apply APP" in message


def test_sources_that_are_not_co_partitioned_are_refused():
    graph = graph_of("flights", {"late": (["raw", "weather"], [])})
    facts = with_topics(HEALTHY, weather=TopicDescription(True, "id-4", 3))
    with pytest.raises(TopologyError, match="raw=2, weather=3"):
        refuse(graph, Settings(), facts)


def test_a_topic_made_again_is_refused_with_both_ids():
    message = refusal(with_topics(KNOWN, raw=replace(RAW, topic_id="id-9")))
    assert "id-9" in message
    assert "id-1" in message
    assert "positions set APP raw=earliest" in message


def test_a_changed_number_of_partitions_is_refused_with_both_counts():
    message = refusal(with_topics(KNOWN, raw=replace(RAW, partitions=3)))
    assert "has 3 partitions" in message
    assert "with 2" in message


def test_a_lost_offset_is_refused_and_never_read_from_elsewhere():
    lost = (Position("raw", 0, None), Position("raw", 1, None))
    message = refusal(replace(KNOWN, committed=lost))
    assert "raw[1]" in message
    assert "raw[0]" not in message
    assert "positions set APP 'raw[1]=OFFSET'" in message


def test_a_timeout_above_the_brokers_is_refused_with_both_figures():
    message = refusal(replace(HEALTHY, brokers={1: {"transaction.max.timeout.ms": "20000"}}))
    assert "worker.transaction_timeout_seconds=30" in message
    assert "transaction.max.timeout.ms=20000" in message


def test_an_application_of_the_same_name_with_other_inputs_is_refused():
    others = interpret({"topic/orders": {"topic_id": "id-8", "partitions": 1}})
    message = refusal(replace(HEALTHY, control=others))
    assert "orders" in message
    assert "another name" in message


def test_members_that_are_no_workers_are_refused_by_client_id():
    message = refusal(replace(HEALTHY, group=GroupDescription(("eosframework-consumer", "sarama"))))
    assert "(client.id sarama)" in message


@pytest.mark.parametrize(("topic", "operation"), [("raw", "Read"), ("late", "Write")])
def test_a_topic_that_may_not_be_used_is_refused_before_its_first_record(
    topic: str, operation: str
):
    allowed = frozenset({"Read", "Write", "Describe"})
    facts = with_topics(HEALTHY, **{topic: TopicDescription(True, "id-1", 2, allowed=allowed)})
    refuse(GRAPH, Settings(), facts)
    denied = TopicDescription(True, "id-1", 2, allowed=allowed - {operation})
    message = refusal(with_topics(HEALTHY, **{topic: denied}))
    assert f"grant {operation} on Topic {topic}" in message


def test_a_group_that_may_not_be_read_is_refused():
    message = refusal(replace(HEALTHY, group=GroupDescription(allowed=frozenset({"Describe"}))))
    assert "grant Read on Group flights" in message


def test_a_registry_copied_from_another_cluster_is_refused():
    assert "cluster-1" in refusal(replace(KNOWN, cluster_id="cluster-2"))


def test_entries_of_others_are_kept_and_not_understood():
    registered = interpret({"relay/orders": {"position": 7}})
    assert registered.entries["relay/orders"] == {"position": 7}


def test_the_outputs_limits_do_not_depend_on_the_inputs():
    facts = with_topics(
        HEALTHY,
        raw=replace(RAW, max_message_bytes=500),
        late=replace(RAW, max_message_bytes=5_000_000),
        dead=replace(RAW, max_message_bytes=1_000_000),
    )
    assert facts.output_limits(GRAPH) == SizeLimits(1_000_000, 5_000_000, are_all=True)
    assert facts.largest_input_bytes(GRAPH) == 500


def test_an_output_of_which_nothing_is_told_leaves_the_limits_open():
    facts = with_topics(HEALTHY, late=replace(RAW, max_message_bytes=0))
    assert facts.output_limits(GRAPH) == SizeLimits(None, None, are_all=False)


def test_the_retention_is_told_in_days():
    assert "7 days" in (retention_note(HEALTHY) or "")


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("orders[3]=12", PositionRequest("orders", 3, "12")),
        ("a.b-c[0]=latest", PositionRequest("a.b-c", 0, "latest")),
        ("orders=earliest", PositionRequest("orders", None, "earliest")),
        ("orders=committed", PositionRequest("orders", None, "committed")),
    ],
)
def test_positions_are_read_as_written(text: str, wish: PositionRequest):
    assert PositionRequest.parse(text) == wish


@pytest.mark.parametrize("text", ["orders", "orders=12", "orders[x]=1", "orders[0]=first", "=1"])
def test_an_unreadable_position_is_refused_with_an_example(text: str):
    with pytest.raises(ConfigurationError, match=r"orders\[0\]=1200"):
        PositionRequest.parse(text)
