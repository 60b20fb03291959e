"""`/state` shows what the stores of this worker's tasks hold, and says what it does not have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import pytest

from eosframework import Topology, tumbling
from eosframework.application.monitoring.http import state_pages
from eosframework.application.monitoring.http.exchange import Answer, Request, Streamed
from eosframework.application.monitoring.http.state_pages import StatePages
from eosframework.application.monitoring.owners import Owners
from eosframework.application.monitoring.stores_here import StoresHere
from eosframework.engine.operators.binding import format_of
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.stores.state_ports import StoreIdentity, TaskStores
from eosframework.kafka.admin.metadata import GroupDescription, GroupMember
from eosframework.kafka.client.partitioner import partition_of
from eosframework.records import TopicPartition
from eosframework.state import MemoryState
from eosframework.topology.resolve.resolve import resolve

PARTITIONS = 4


class Worker:
    """A worker with some partitions of the stores `counts` and `hourly`."""

    def __init__(self, *here: int, up_to_date: bool = True) -> None:
        app = Topology("words")
        keyed = app.stream("lines", key=str, value=dict).group_by_key()
        keyed.count(store="counts").to("counts")
        keyed.window(tumbling("1h")).count(store="hourly").to("hourly")
        self.graph = resolve(app.loaded())
        (self.part,) = self.graph.sub_topologies
        self.stores = {store.name: store for store in self.part.stores}
        self.shared = SharedStores()
        self.tasks: dict[int, TaskStores] = {}
        identities = [StoreIdentity(name, "id", 1) for name in self.stores]
        for number in here:
            opened = MemoryState().open(f"lines-{number}", PARTITIONS, identities)
            self.tasks[number] = self.shared.share(self.part.name, number, opened)
            if up_to_date:
                self.shared.mark_up_to_date(self.part.name, number)
        others = [number for number in range(PARTITIONS) if number not in here]
        self.members = [_member("words.own", "m1", here), _member("words.other", "m2", others)]
        self.owners = owners = Owners(
            "words.own",
            {self.part.name: ["lines"]},
            lambda: GroupDescription(members=tuple(self.members), is_stable=True),
            lambda: {"words.other": "127.0.0.1:9"},
            lambda job: job(),
        )
        owners.sit(lambda: "m1")
        pages = StatePages(
            "words",
            StoresHere(self.graph, self.shared, {self.part.name: PARTITIONS}, partition_of),
            owners,
        )
        self._page = pages.page

    def put(self, **counts: int) -> None:
        """Commit counts where Kafka's clients put their keys, at the time 1000."""
        form = format_of(self.stores["counts"])
        for number, (key, count) in enumerate(counts.items()):
            changes = [(key.encode(), form.encode((count, 1000)))]
            partition = partition_of(key.encode(), PARTITIONS)
            self.tasks[partition].write({"counts": changes}, {"counts": number + 1})

    def ask(self, path: str, **options: str) -> Answer:
        return self._page(Request(path.split("/")[1:], options))

    def see(self, path: str, **options: str) -> Mapping[str, Any]:
        return json_of(self.ask(path, **options))


def _member(name: str, member_id: str, partitions: Iterable[int]) -> GroupMember:
    given = tuple(TopicPartition("lines", number) for number in partitions)
    return GroupMember(name, "127.0.0.1", given, member_id)


def json_of(answer: Answer) -> Mapping[str, Any]:
    if isinstance(answer.content, Streamed):
        return json.loads(b"".join(answer.content.parts))
    assert isinstance(answer.content, Mapping)
    return answer.content


def test_all_stores_are_listed_with_what_is_here() -> None:
    worker = Worker(0, 2)
    worker.put(**{key_in(2): 1})
    (counts, hourly) = worker.see("state")["stores"]
    assert (counts["store"], hourly["store"]) == ("counts", "hourly")
    assert counts["partitions"] == PARTITIONS
    assert counts["here"] == [
        {"partition": 0, "up_to_date": True, "position": None},
        {"partition": 2, "up_to_date": True, "position": 1},
    ]


def key_in(partition: int, number: int = 0) -> str:
    keys = (f"key{n}" for n in range(1000))
    return [key for key in keys if partition_of(key.encode(), PARTITIONS) == partition][number]


def test_a_key_is_found_in_whichever_partition_has_it() -> None:
    worker = Worker(0, 1, 2, 3)
    worker.put(a=1, b=2)
    answer = worker.ask("state/counts/b")
    assert answer.status is HTTPStatus.OK
    found = json_of(answer)
    assert found["found"] == [{"value": 2, "timestamp": 1000}]
    assert found["partition"] == partition_of(b"b", PARTITIONS)
    assert found["more"] is False
    # Its producer may have placed it as it liked.
    elsewhere = (partition_of(b"x", PARTITIONS) + 1) % PARTITIONS
    data = format_of(worker.stores["counts"]).encode((7, 5))
    worker.tasks[elsewhere].write({"counts": [(b"x", data)]}, {"counts": 9})
    assert worker.see("state/counts/x")["partition"] == elsewhere


def test_a_key_may_hold_slashes() -> None:
    worker = Worker(0, 1, 2, 3)
    worker.put(**{"a/b": 4})
    assert worker.see("state/counts/a/b")["key"] == "a/b"


def test_a_key_of_another_worker_is_answered_with_its_partition() -> None:
    worker = Worker(0, 1)
    answer = worker.ask(f"state/counts/{key_in(3)}", at="here")
    assert answer.status is HTTPStatus.MISDIRECTED_REQUEST
    assert (json_of(answer)["partition"], json_of(answer)["here"]) == (3, [0, 1])
    assert json_of(answer)["owner"] == {"instance": "words.other", "address": "127.0.0.1:9"}
    absent = worker.ask(f"state/counts/{key_in(1)}")
    assert absent.status is HTTPStatus.NOT_FOUND
    assert json_of(absent)["error"].endswith("in partitions [0, 1]")


def test_a_worker_that_the_coordinator_does_not_name_answers_nothing_and_says_ask_again() -> None:
    worker = Worker(0, 1, 2)
    worker.put(**{key_in(0): 1})
    asked = f"state/counts/{key_in(0)}", "state/counts"
    assert [worker.ask(path).status for path in asked] == [HTTPStatus.OK] * 2
    # Another process has joined under its name, and then it was evicted.
    for members in ([_member("words.own", "m3", [0, 1, 2])], [_member("words.other", "m2", [0])]):
        other = Worker(0, 1, 2)
        other.members = members
        answers = [other.ask(path, at="here") for path in asked]
        assert {a.status for a in answers} == {HTTPStatus.SERVICE_UNAVAILABLE}
        assert {a.headers["Retry-After"] for a in answers} == {"1"}


def test_a_key_whose_partition_is_assigned_and_not_open_yet_is_asked_for_again() -> None:
    worker = Worker(0)
    worker.members = [_member("words.own", "m1", range(PARTITIONS))]
    for at in ("owner", "redirect", "here"):
        answer = worker.ask(f"state/counts/{key_in(3)}", at=at)
        assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert "being taken over by this worker" in json_of(answer)["error"]


def test_a_range_of_keys_is_shown_up_to_a_limit() -> None:
    worker = Worker(0, 1, 2, 3)
    worker.put(**{f"k{n:02}": n for n in range(20)})
    shown = worker.see("state/counts", **{"from": "k05", "to": "k15", "limit": "7"})
    assert (len(shown["found"]), shown["more"]) == (7, True)
    every = worker.see("state/counts/", **{"from": "k05", "to": "k15"})
    assert sorted(row["key"] for row in every["found"]) == [f"k{n:02}" for n in range(5, 15)]
    assert every["more"] is False
    assert every["partitions"] == [0, 1, 2, 3]


@pytest.mark.parametrize(("more", "rows"), [(-1, 3), (0, 2), (1, 2)])
def test_the_rows_of_an_answer_are_bounded_in_bytes(
    more: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(0, 1, 2, 3)
    worker.put(**{f"k{n}": n for n in range(9)})
    one = worker.ask("state/counts", limit="1").content
    assert isinstance(one, Streamed)
    row = len(b"".join(one.parts).partition(b"[{")[2].partition(b"}]")[0]) + 2
    # Two rows reach the bound that is twice one's size; one byte more, and a third one is added.
    bound = state_pages.STATE_BYTES._replace(value=2 * row - more)
    monkeypatch.setattr(state_pages, "STATE_BYTES", bound)
    shown = worker.see("state/counts")
    assert (len(shown["found"]), shown["more"]) == (rows, True)


@pytest.mark.parametrize("limit", ["0", "1001", "many", "-1", "", "²", "9" * 5000])
def test_a_limit_that_cannot_be_is_refused(limit: str) -> None:
    answer = Worker(0).ask("state/counts", limit=limit)
    assert answer.status is HTTPStatus.BAD_REQUEST
    assert "expected a number from 1 to 1000" in json_of(answer)["error"]


def test_a_store_that_is_not_up_to_date_is_not_shown() -> None:
    worker = Worker(0, 1, up_to_date=False)
    worker.shared.mark_up_to_date(worker.part.name, 0)
    assert worker.shared.waiting == 1
    for path in ("state/counts", f"state/counts/{key_in(1)}"):
        answer = worker.ask(path)
        assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert "partitions [1]" in json_of(answer)["error"]


def test_an_unknown_store_and_a_wrong_key_are_refused_by_name() -> None:
    worker = Worker(0)
    unknown = worker.ask("state/count/a")
    assert unknown.status is HTTPStatus.NOT_FOUND
    assert "no store 'count'; there are counts, hourly" in json_of(unknown)["error"]
    numbers: Any = Topology("numbers")
    numbers.stream("in", key=int, value=dict).group_by_key().count(store="n").to("out")
    stores = StoresHere(resolve(numbers.loaded()), SharedStores(), {}, partition_of)
    wrong = StatePages("numbers", stores, worker.owners).page(Request(["n", "seven"], {}))
    assert wrong.status is HTTPStatus.BAD_REQUEST
    assert "is not a key of store 'n', whose keys are int" in json_of(wrong)["error"]


def test_what_was_given_up_is_not_shown_any_more() -> None:
    worker = Worker(0, 1)
    worker.tasks[1].close()
    assert worker.see("state/counts")["partitions"] == [0]
    assert worker.shared.waiting == 0


@pytest.mark.parametrize(
    ("key", "hash_"),
    [("21", -973932308), ("foobar", -790332482), ("a-little-bit-long-string", -985981536)],
)
def test_keys_are_placed_as_java_does(key: str, hash_: int) -> None:
    """The hashes are those of Kafka's own test of murmur2 (UtilsTest)."""
    assert partition_of(key.encode(), 7) == (hash_ & 0x7FFFFFFF) % 7
