"""A job is written as it is read, and what differs from it is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework import Topology
from eosframework.errors import ConfigurationError
from eosframework.records import TopicPartition
from eosframework.spark.job.job_entry import (
    FILES_PER_ENTRY,
    Files,
    Job,
    OffsetRange,
    PinnedFile,
    TaskProgress,
    cutover_key,
    ends_key,
    from_entries,
    task_key,
    to_entries,
)
from eosframework.spark.job.stages import (
    FileRequest,
    Request,
    differences,
    fingerprint,
    request_differences,
)
from eosframework.topology.resolve.resolve import resolve


def files(count: int) -> Files:
    listed = tuple(
        PinnedFile(path=f"/data/{n:05}.csv", size_bytes=n, modified_at=n) for n in range(count)
    )
    return Files(
        format="csv", partitions=4, partitioner="murmur2", split_bytes=1, key="id", files=listed
    )


def job(**changes: object) -> Job:
    return Job(
        application="orders",
        name="all",
        fingerprint={"topology": "0"},
        created_at=1,
        ranges={"orders.raw": (OffsetRange(first=2, end=9), OffsetRange(first=0, end=0))},
    ).model_copy(update=changes)


def through_json(entries: dict[str, object]) -> dict[str, object]:
    return orjson.loads(orjson.dumps(entries))


@given(st.sampled_from([0, 1, FILES_PER_ENTRY, FILES_PER_ENTRY + 1, 3 * FILES_PER_ENTRY]))
def test_a_job_is_read_as_it_was_written(count: int) -> None:
    written = job(files={"history": files(count)}, own_starts={"orders-x-repartition": (3, 4)})
    state = from_entries("all", through_json(to_entries(written)))
    assert state is not None
    assert state.job == written


def test_a_job_is_known_only_when_its_last_entry_is_there() -> None:
    entries = to_entries(job(files={"history": files(5)}))
    last = list(entries)[-1]
    del entries[last]
    assert from_entries("all", through_json(entries)) is None


def test_what_a_job_has_done_is_found_among_the_entries_of_others() -> None:
    progress = TaskProgress(
        positions={"orders.raw/1": 7}, metadata="eos1;3;9", complete=True, attempt="a", written_at=5
    )
    entries = {
        **to_entries(job()),
        **to_entries(job(name="all_2")),
        "topic/orders.raw": {"topic_id": "x", "partitions": 2},
        task_key("all", "part", 1): progress.to_entry(),
        task_key("all_2", "part", 0): progress.to_entry(),
        ends_key("all", "orders-x-repartition"): [4, 5],
        cutover_key("all"): {"at": 12},
    }
    state = from_entries("all", through_json(entries))
    assert state is not None
    assert dict(state.tasks) == {("part", 1): progress}
    assert state.ends == {"orders-x-repartition": (4, 5)}
    assert state.cut_over_at == 12
    assert progress.by_partition() == {TopicPartition("orders.raw", 1): 7}
    assert not state.is_complete("part", 2)


def doubled(value: int) -> int:
    return 2 * value


def orders(step: Callable[..., Any]) -> Topology:
    app = Topology("orders")
    app.stream("orders.raw", value=int).map_values(step).to("orders.out")
    return app


def digest(step: Callable[..., Any]) -> dict[str, str]:
    return fingerprint(resolve(orders(step).loaded()))


def test_the_same_topology_has_the_same_fingerprint() -> None:
    assert digest(doubled) == digest(doubled)
    assert __name__ in digest(doubled)


def test_another_function_is_another_topology() -> None:
    source = "def f(v):\n    return v {} 2\n"
    made: list[dict[str, Any]] = []
    for sign in "+*":
        names: dict[str, Any] = {"__name__": "notebook"}
        exec(source.format(sign), names)
        made.append(names)
    one, other = (digest(names["f"]) for names in made)
    assert differences(one, other) == ["module notebook:f"]


def test_what_is_not_said_again_is_as_it_was() -> None:
    before = Request(start=("2024-01-01",), end=("end",)).written()
    assert request_differences(before, Request().written()) == []
    assert request_differences(before, Request(end=("end",)).written()) == []
    found = request_differences(before, Request(start=("beginning",)).written())
    assert found == ["--from beginning instead of 2024-01-01"]


def test_a_source_of_files_is_read_with_its_settings() -> None:
    found = FileRequest.parse("raw=csv:a/*.csv,b.csv;key=id;option.header=true;partitioner=crc32")
    assert found == FileRequest(
        "raw", "csv", ("a/*.csv", "b.csv"), key="id", partitioner="crc32", options=("header=true",)
    )
    assert found.spark_options == {"header": "true"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("raw", "is not a source"),
        ("raw=xml:a", "expected TOPIC=FORMAT:PATH"),
        ("raw=csv:", "is not a source"),
        ("raw=delta:a,b", "names several tables"),
        ("raw=csv:a;kee=id", "'kee' is not a setting"),
        ("raw=csv:a;key", "is not NAME=VALUE"),
    ],
)
def test_a_source_that_is_none_is_refused(text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        FileRequest.parse(text)


def test_a_topic_is_not_given_files_twice() -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        Request(source=("raw=csv:a", "raw=json:b")).files  # noqa: B018
