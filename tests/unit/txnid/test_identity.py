from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eosframework.errors import ConfigurationError, TopologyError
from eosframework.txnid import (
    TransactionalId,
    prefix,
    refuse_bad_application,
    refuse_bad_name,
    refuse_reserved_name,
)
from eosframework.txnid.names import APPLICATION

names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789_.", min_size=1, max_size=40).filter(
    lambda name: name != "worker."
)  # A worker's without an instance, which is no name.
applications = st.one_of(
    st.from_regex(rf"\A{APPLICATION}\Z").filter(lambda name: len(name) <= 200),
    st.text(alphabet="ab-", min_size=1, max_size=4).map(lambda name: f"a{name}"),
)
instances = st.from_regex(r"\A[A-Za-z0-9_.-]{1,40}\Z")
partitions = st.integers(min_value=0, max_value=2**31 - 1)
ids = st.builds(TransactionalId.make, applications, names, partitions)


@given(ids)
def test_an_id_parses_back_into_itself(identity: TransactionalId) -> None:
    assert TransactionalId.parse(str(identity)) == identity


@given(ids, ids)
def test_two_identities_never_share_an_id(one: TransactionalId, other: TransactionalId) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(applications, instances)
def test_a_workers_id_parses_back_into_its_instance(application: str, instance: str) -> None:
    identity = TransactionalId.worker(application, instance)
    parsed = TransactionalId.parse(str(identity))
    assert parsed == identity
    assert parsed.instance == instance
    assert str(identity).startswith(prefix(application))


@given(applications, instances, instances)
def test_two_workers_never_share_an_id(application: str, one: str, other: str) -> None:
    ids = {str(TransactionalId.worker(application, name)) for name in (one, other)}
    assert len(ids) == 2 - (one == other)


@given(ids, instances)
def test_no_task_of_a_topology_has_the_id_of_a_worker(task: TransactionalId, instance: str) -> None:
    assume(not task.sub_topology.startswith("worker."))  # `lint` refuses such a sub-topology.
    assert str(task) != str(TransactionalId.worker(task.application, instance))
    assert task.instance is None


@pytest.mark.parametrize("name", ["a:b", "a b", "", "ä"])
def test_an_instance_that_fits_no_id_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match=r"instance name .* becomes part"):
        TransactionalId.worker("flights", name)


@given(applications, names, st.data())
def test_every_kind_of_id_parses_back_into_its_parts(
    application: str, name: str, data: st.DataObject
) -> None:
    number = data.draw(partitions)
    for made in (
        TransactionalId.make(application, name, number),
        TransactionalId.backfill(application, name, number),
        TransactionalId.relay(application, name, number),
        TransactionalId.replay(application),
        TransactionalId.worker(application, name),
    ):
        parsed = TransactionalId.parse(str(made))
        assert (parsed.application, parsed.sub_topology, parsed.partition) == (
            application,
            made.sub_topology,
            made.partition,
        )


@given(applications, applications)
def test_no_applications_prefix_starts_anothers(one: str, other: str) -> None:
    assert prefix(one).startswith(prefix(other)) == (one == other)


@given(ids, applications)
def test_a_prefix_selects_the_ids_of_its_own_application_only(
    identity: TransactionalId, application: str
) -> None:
    belongs = identity.application == application
    assert str(identity).startswith(prefix(application)) == belongs


@given(st.text(max_size=30))
def test_whatever_parses_is_written_the_same_way(text: str) -> None:
    try:
        identity = TransactionalId.parse(text)
    except ConfigurationError:
        return
    assert str(identity) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a:b", "a:b:", "a:b:01", "a:b:-1", "a:b:c:1", "A:b:1", "-a:b:1", "a:b-c:1"),
        *("a:b:1\n", "a:b:١", "a-b-1"),
    ],
)
def test_a_text_that_is_no_id_is_refused_with_the_form_of_one(text: str) -> None:
    with pytest.raises(ConfigurationError, match="APPLICATION:SUBTOPOLOGY:PARTITION"):
        TransactionalId.parse(text)


@pytest.mark.parametrize("text", ["a:b:0..0", "a:b:1..2", "a:b:4..3", "a:b:0..1..2", "a:b:0..01"])
def test_a_range_that_is_no_block_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="transactional id"):
        TransactionalId.parse(text)


@pytest.mark.parametrize(("name", "wrong"), [("my-part", "'-'"), ("Äpp l", "'Ä', ' '")])
def test_a_bad_name_is_refused_with_its_characters(name: str, wrong: str) -> None:
    with pytest.raises(TopologyError, match=f"sub-topology name '{name}' contains {wrong}; .*a-z"):
        TransactionalId.make("flights", name, 0)


@pytest.mark.parametrize("name", ["my-app", "a", "0", "a--", "a._-", "a-b-changelog"])
def test_an_application_may_have_a_hyphen(name: str) -> None:
    refuse_bad_application(name)
    assert TransactionalId.parse(f"{name}:late:0").application == name


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("Äpp l", "contains 'Ä', ' '"),
        ("a:b", "contains ':'"),
        ("-a", "begins with '-'"),
        (".", "begins with '.'"),
        ("_a", "begins with '_'"),
    ],
)
def test_a_bad_application_is_refused_with_its_characters(name: str, wrong: str) -> None:
    with pytest.raises(TopologyError, match=f"application name '{name}' {wrong}; .*a-z, digits"):
        TransactionalId.make(name, "late", 0)


def test_an_empty_or_overlong_name_is_refused() -> None:
    with pytest.raises(TopologyError, match="job name is empty"):
        refuse_bad_name("job", "")
    with pytest.raises(TopologyError, match="has 201 characters; use at most 200"):
        refuse_bad_name("job", "a" * 201)


def test_a_negative_partition_is_refused() -> None:
    with pytest.raises(TopologyError, match="partition -1"):
        TransactionalId.make("flights", "late", -1)


@pytest.mark.parametrize("name", ["backfill.june", "relay.orders", "replay.x"])
def test_the_frameworks_own_names_are_refused_to_users(name: str) -> None:
    with pytest.raises(TopologyError, match="reserved"):
        refuse_reserved_name(name)


@pytest.mark.parametrize("name", ["registry", "backfill", "relayed", "late"])
def test_names_that_only_look_alike_are_free(name: str) -> None:
    refuse_reserved_name(name)


def test_backfills_and_relays_have_ids_of_their_own() -> None:
    assert str(TransactionalId.backfill("flights", "june", 3)) == "flights:backfill.june:3"
    assert str(TransactionalId.relay("flights", "orders")) == "flights:relay.orders:0"


def test_a_sink_may_have_a_dash_and_a_sub_topology_may_not() -> None:
    of_sink = TransactionalId.sink("app", "delays-2013.may-1", 3)
    assert str(of_sink) == "app:sink.delays-2013.may-1:3"
    assert TransactionalId.parse(str(of_sink)) == of_sink
    of_driver = TransactionalId.sink_driver("app", "delays-2013")
    assert TransactionalId.parse(str(of_driver)) == of_driver
    with pytest.raises(TopologyError):
        TransactionalId.make("app", "sinks-1", 0)


def test_no_shard_or_job_of_a_sink_has_the_id_of_a_driver() -> None:
    names = [n + j for n in ("driver", "x", "sink") for j in ("", ".driver", ".x", ".sink")]
    shards = {str(TransactionalId.sink("app", name, 0)) for name in names}
    drivers = {str(TransactionalId.sink_driver("app", name)) for name in names}
    assert len(shards) == len(drivers) == len(names)
    assert not shards & drivers
