"""What the cycle expects of the stores on this machine, asked of both kinds."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eosframework.config import StateBackendKind, StateSettings
from eosframework.engine.stores.state_ports import StateBackend, TaskStores
from eosframework.state import state_backend
from tests.support.applications.stores import COUNTS, NAMES, SMALL_CACHE_BYTES, TASK, content


@pytest.fixture
def stores(backend: StateBackend) -> TaskStores:
    return backend.open(TASK, 4, [COUNTS, NAMES])


def test_a_new_store_is_empty_and_has_no_position(stores: TaskStores) -> None:
    assert stores.store("counts").get(b"k") is None
    assert content(stores.store("counts")) == {}
    assert stores.position("counts") is None
    assert stores.written_at("counts") is None


def test_what_was_written_is_read_and_the_position_with_it(stores: TaskStores) -> None:
    before = time.time()
    stores.write(
        {"counts": [(b"a", b"1"), (b"b", b"")], "names": [(b"a", b"x")]}, {"counts": 7, "names": 3}
    )
    stores.write({"counts": [(b"a", None), (b"c", b"2")]}, {"counts": 9})

    assert content(stores.store("counts")) == {b"b": b"", b"c": b"2"}
    assert stores.store("counts").get(b"a") is None
    assert stores.store("counts").get(b"b") == b""
    assert content(stores.store("names")) == {b"a": b"x"}
    assert (stores.position("counts"), stores.position("names")) == (9, 3)
    written_at = stores.written_at("counts")
    assert written_at is not None
    assert before - 1 <= written_at <= time.time() + 1


def test_the_last_of_several_changes_of_a_key_counts(stores: TaskStores) -> None:
    stores.write(
        {"counts": [(b"k", b"1"), (b"k", None), (b"k", b"3"), (b"j", b"1"), (b"j", None)]},
        {"counts": 1},
    )

    assert content(stores.store("counts")) == {b"k": b"3"}


def test_a_position_may_move_without_a_change(stores: TaskStores) -> None:
    stores.write({}, {"counts": 5})
    stores.write({"counts": []}, {"counts": 6})

    assert stores.position("counts") == 6


def test_content_without_a_position_is_refused(stores: TaskStores) -> None:
    with pytest.raises(ValueError, match="counts"):
        stores.write({"counts": [(b"k", b"1")]}, {"names": 1})

    assert content(stores.store("counts")) == {}
    assert stores.position("names") is None


def test_changes_that_fail_to_come_change_nothing(stores: TaskStores) -> None:
    def torn() -> Iterator[tuple[bytes, bytes | None]]:
        yield b"k", b"1"
        raise ConnectionError("the rest did not come")

    with pytest.raises(ConnectionError):
        stores.write({"names": [(b"k", b"1")], "counts": torn()}, {"counts": 1, "names": 1})

    assert content(stores.store("counts")) == content(stores.store("names")) == {}
    assert stores.position("counts") is stores.position("names") is None


def test_a_scan_is_in_the_order_of_bytes_between_its_bounds(stores: TaskStores) -> None:
    keys = [b"", b"\x00", b"a", b"a\x00", b"aa", b"b", b"\xff", b"\xff\xff"]
    stores.write({"counts": [(key, key) for key in reversed(keys)]}, {"counts": 1})
    store = stores.store("counts")

    assert [key for key, _ in store.scan()] == keys
    assert [key for key, _ in store.scan(reverse=True)] == keys[::-1]
    assert [key for key, _ in store.scan(b"a", b"b")] == [b"a", b"a\x00", b"aa"]
    assert [key for key, _ in store.scan(b"a", b"b", reverse=True)] == [b"aa", b"a\x00", b"a"]
    assert [key for key, _ in store.scan(b"aaa")] == [b"b", b"\xff", b"\xff\xff"]
    assert list(store.scan(b"b", b"a")) == list(store.scan(b"b", b"b")) == []
    assert list(store.scan(b"", b"")) == []


def test_a_scan_shows_nothing_of_what_is_written_meanwhile(stores: TaskStores) -> None:
    entries = [(b"%04d" % n, b"old") for n in range(2000)]
    stores.write({"counts": entries}, {"counts": 1})
    begun, not_begun = stores.store("counts").scan(), stores.store("counts").scan(reverse=True)
    first = next(begun)

    stores.write({"counts": [(key, None) for key, _ in entries[::2]]}, {"counts": 2})
    stores.write({"counts": [(key, b"new") for key, _ in entries[1::2]]}, {"counts": 3})
    stores.write({"counts": [(b"%04d+" % n, b"new") for n in range(2000)]}, {"counts": 4})
    stores.clear("names")

    assert [first, *begun] == entries
    assert list(not_begun) == entries[::-1]


def test_a_scan_survives_that_its_store_is_cleared(stores: TaskStores) -> None:
    entries = [(b"%04d" % n, b"") for n in range(2000)]
    stores.write({"counts": entries}, {"counts": 1})
    scan = stores.store("counts").scan()

    stores.clear("counts")

    assert list(scan) == entries
    assert content(stores.store("counts")) == {}


def test_a_cleared_store_is_empty_without_a_position_and_can_be_filled(stores: TaskStores) -> None:
    stores.write({"counts": [(b"k", b"1")], "names": [(b"k", b"1")]}, {"counts": 4, "names": 4})
    store = stores.store("counts")

    stores.clear("counts")

    assert content(store) == content(stores.store("counts")) == {}
    assert stores.position("counts") is stores.written_at("counts") is None
    assert content(stores.store("names")) == {b"k": b"1"}
    assert stores.position("names") == 4
    stores.write({"counts": [(b"j", b"2")]}, {"counts": 1})
    assert content(store) == {b"j": b"2"}


def test_a_task_is_opened_again_after_it_was_given_up(backend: StateBackend) -> None:
    for _ in range(3):
        stores = backend.open(TASK, 4, [COUNTS])
        stores.write({"counts": [(b"k", b"1")]}, {"counts": 1})
        unfinished = stores.store("counts").scan()
        next(unfinished)
        stores.close()
        stores.close()


def test_tasks_do_not_see_each_other(backend: StateBackend) -> None:
    one, other = backend.open("late-0", 4, [COUNTS]), backend.open("late-1", 4, [COUNTS])

    one.write({"counts": [(b"k", b"1")]}, {"counts": 1})

    assert content(other.store("counts")) == {}
    assert other.position("counts") is None


def test_a_stores_size_is_told(stores: TaskStores) -> None:
    stores.write({"counts": [(b"%d" % n, bytes(100)) for n in range(1000)]}, {"counts": 1})

    sizes = {size.store: size for size in stores.stats()}

    assert sizes["counts"].keys == 1000
    assert sizes["counts"].memory_bytes + sizes["counts"].disk_bytes > 100_000
    assert sizes["names"].keys == 0


names = st.sampled_from(["counts", "names"])
keys = st.binary(max_size=3)
step = st.one_of(
    st.tuples(
        st.just("write"), names, st.lists(st.tuples(keys, st.none() | st.binary(max_size=3)))
    ),
    st.tuples(st.just("clear"), names, st.just(None)),
)


@pytest.mark.parametrize("kind", list(StateBackendKind))
@given(steps=st.lists(step, max_size=25), bounds=st.tuples(keys, st.none() | keys))
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_history_leaves_what_a_dictionary_would(
    kind: StateBackendKind, steps: list, bounds: tuple, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("any")
    chosen = StateSettings(backend=kind, directory=directory, cache_bytes=SMALL_CACHE_BYTES)
    backend = state_backend(chosen, "flights", "host.0")
    stores = backend.open(TASK, 4, [COUNTS, NAMES])
    model: dict[str, dict[bytes, bytes]] = {"counts": {}, "names": {}}
    for position, (action, name, changes) in enumerate(steps):
        if action == "clear":
            stores.clear(name)
            model[name].clear()
            continue
        stores.write({name: changes}, {name: position})
        for key, value in changes:
            if value is None:
                model[name].pop(key, None)
            else:
                model[name][key] = value
    first, last = bounds
    for name, expected in model.items():
        found = list(stores.store(name).scan(first, last))
        within = [k for k in sorted(expected) if first <= k and (last is None or k < last)]
        assert found == [(key, expected[key]) for key in within]
        assert list(stores.store(name).scan(first, last, reverse=True)) == found[::-1]
        assert all(stores.store(name).get(key) == value for key, value in expected.items())
    backend.close()
