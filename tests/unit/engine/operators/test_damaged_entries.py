"""Entries that cannot be decoded: an error that names the store, and never a dead letter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from eosframework import dead_letter, session, sliding, tumbling
from eosframework.errors import EntryDamaged, RunError
from eosframework.topology.dsl.builder import Topology
from tests.support.applications.one_task import OneTask, compiled_task

DEAD = dead_letter("dead")
SEEDS = 120
GLOBAL = "rates"


def both(left: Any, right: Any) -> list[Any]:
    return [left, right]


def as_it_is(value: Any) -> Any:
    return value


def one(value: Any) -> int:
    return 1


def later(left: Any, right: Any) -> Any:
    return right


def remember(record: Any, context: Any) -> Iterator[Any]:
    kept = context.store("kept")
    yield record.key, [kept.get(record.key), [*kept.items()]]
    kept.put(record.key, record.value)
    context.set_timer(record.timestamp + 50)


def ring(key: Any, at: int, context: Any) -> Iterator[Any]:
    yield key, context.store("kept").get(key)


def keyed(finish: Callable[[Any], Any]) -> Callable[[], Topology]:
    def make() -> Topology:
        app = Topology("app")
        stream = app.stream("left", key=str, value="json").on_error(DEAD)
        finish(stream.group_by_key()).to("out", value="json")
        return app

    return make


def deduplicated() -> Topology:
    app = Topology("app")
    stream = app.stream("left", key=str, value="json").on_error(DEAD)
    stream.group_by_key().deduplicate("20ms", by=as_it_is).to("out", value="json")
    return app


def processed() -> Topology:
    app = Topology("app")
    stream = app.stream("left", key=str, value="json").on_error(DEAD)
    stream.process(remember, stores={"kept": "json"}, on_timer=ring).to("out", value="json")
    return app


def joined_streams() -> Topology:
    app = Topology("app")
    left = app.stream("left", key=str, value="json").on_error(DEAD)
    right = app.stream("right", key=str, value="json").on_error(DEAD)
    left.join_within(right, both, within="10ms", how="outer").to("out", value="json")
    return app


def joined_table(**options: Any) -> Callable[[], Topology]:
    def make() -> Topology:
        app = Topology("app")
        left = app.stream("left", key=str, value="json").on_error(DEAD)
        table = app.table("right", key=str, value="json", **options).on_error(DEAD)
        left.join(table, both, how="left").to("out", value="json")
        return app

    return make


TOPOLOGIES: Mapping[str, Callable[[], Topology]] = {
    "count": keyed(lambda grouped: grouped.count()),
    "reduce": keyed(lambda grouped: grouped.reduce(later)),
    "ttl": keyed(lambda grouped: grouped.reduce(later, ttl="30ms")),
    "tumbling": keyed(lambda grouped: grouped.window(tumbling("20ms")).reduce(later)),
    "closed": keyed(lambda grouped: grouped.window(tumbling("20ms")).reduce(later, emit="close")),
    "sliding": keyed(lambda grouped: grouped.window(sliding("20ms")).reduce(later)),
    "session": keyed(lambda grouped: grouped.window(session("20ms")).reduce(later)),
    "deduplicate": deduplicated,
    "process": processed,
    "stream join": joined_streams,
    "table": joined_table(),
    "history": joined_table(history="100ms"),
}


def changed(draw: random.Random, data: bytes) -> bytes:
    """Cut bytes, flip one, or put others in their place."""
    match draw.randrange(4):
        case 0:
            return data[: draw.randrange(len(data) + 1)]
        case 1:
            return draw.randbytes(draw.randrange(30))
        case 2 if data:
            at = draw.randrange(len(data))
            return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
        case _:
            return data[:9] + draw.choice((b"", b"\xff", b"{", b"nothing", data[9:] + b"\xff"))


def play(task: OneTask, draw: random.Random, first: int) -> None:
    topics = [topic for topic in ("left", "right") if topic in task.compiled.sources]
    for number in range(12):
        time = first + 3 * number
        task.send(draw.choice(topics), draw.choice("ab"), number, time)
    task.commit()


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_no_record_is_blamed_for_an_entry_that_cannot_be_decoded(name: str) -> None:
    compiled = compiled_task(TOPOLOGIES[name]())
    named = 0
    for seed in range(SEEDS):
        draw = random.Random(seed)
        task = OneTask(compiled)
        play(task, draw, 0)
        store = draw.choice([s.name for s in task.part.stores if task.held()[s.name]])
        for key, data in draw.sample(sorted(task.held()[store].items()), 1):
            if draw.random() < 0.2:
                changes = [(key, None), (changed(draw, key), data)]
            else:
                changes = [(key, changed(draw, data))]
            task.stores.write({store: changes}, {store: 10_000})
        task.restart()
        refused: list[RunError] = []
        try:
            for first in (30, 200, 400):
                play(task, draw, first)
        except RunError as error:  # Others than EntryDamaged: of other windows, or of a version.
            refused.append(error)
        assert all(f"store {store!r}" in str(error) for error in refused), seed
        named += any(isinstance(error, EntryDamaged) for error in refused)
        assert (task.failures.dead_letters, task.failures.skipped) == (0, 0), f"{name}: {seed}"
    assert named > SEEDS // 20, f"of {SEEDS} damages only {named} were met"


def test_a_row_of_a_global_table_that_cannot_be_decoded_is_the_topics() -> None:
    app = Topology("app")
    rates = app.global_table(GLOBAL, key=str, value="json")
    left = app.stream("left", key=str, value="json").on_error(DEAD)
    left.join(rates, both).to("out", value="json")
    task = OneTask(compiled_task(app), {GLOBAL: {b"a": (b"{", 0), b"b": (b"1", 0)}})
    assert task.send("left", "b", 2, 5) == [("out", "b", [2, 1], 5)]
    with pytest.raises(EntryDamaged, match=r"global table of topic 'rates': an entry cannot be"):
        task.send("left", "a", 2, 5)
    assert task.failures.dead_letters == 0
