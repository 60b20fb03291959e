"""Compares what is committed with what a model says, at any point at which workers may end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson

from eosframework.testing.stateless_driver import Sent as Message
from tests.support.memory.faulty_kafka import FaultyKafka
from tests.unit.matrix.models import Model, Seen, Sent, value_of
from tests.unit.matrix.play import World, Wrong, compacted

HEAD = 9
"""Bytes before the value of an entry: its version and timestamp."""

Decode = Callable[[bytes, bytes], tuple[Any, Any]]
"""Takes key and entry; returns both as the model has them."""


def text_key(key: bytes, entry: bytes) -> tuple[Any, Any]:
    """Of JSON values by text."""
    return key.decode(), orjson.loads(entry[HEAD:])


def number_by_text(key: bytes, entry: bytes) -> tuple[Any, Any]:
    """Of integers by text."""
    return key.decode(), int.from_bytes(entry[HEAD:], "big", signed=True)


def window_key(key: bytes, entry: bytes) -> tuple[Any, Any]:
    """Of integers by window and text."""
    if key == b"\xff":
        return None, None
    count = int.from_bytes(entry[HEAD:], "big", signed=True)
    return (int.from_bytes(key[:8], "big"), key[8:].decode()), count


def seen(message: Message, decode: Callable[[bytes | None], Any] = value_of) -> Seen:
    """Return an input as models take it."""
    key = (message.key() or b"").decode()
    return message.topic(), key, decode(message.value()), message.timestamp()[1]


def in_time(messages: Iterable[Message]) -> list[Message]:
    """Return messages of several topics in the order in which a task has to take them."""
    return sorted(messages, key=lambda message: message.timestamp()[1])


def inputs_of(
    log: FaultyKafka, topics: Sequence[str], number: int, waves: Sequence[int] | None = None
) -> list[Message]:
    """Return the committed inputs of a task, in the order in which it has to take them.

    Raises:
        Wrong: it took them in another order.
    """
    every: list[Message] = []
    done: list[Message] = []
    for topic in topics:
        messages = log.logs[(topic, number)].messages  # type: ignore[index]
        position = log.positions.get((topic, number))  # type: ignore[call-overload]
        offset = 0 if position is None else position.offset or 0
        every += messages
        done += [message for message in messages if message.offset() < offset]
    if len(topics) == 1:
        return done
    ordered = in_time(every)[: len(done)]
    if Counter(map(id, ordered)) != Counter(map(id, done)):
        raise Wrong(
            f"records of {', '.join(topics)} were not taken in the order of their times: "
            f"{[(m.topic_, m.offset_) for m in done]}"
        )
    return ordered


def compare(
    world: World,
    models: Mapping[str, Model],
    stores: Mapping[str, Decode] | None = None,
    decode: Callable[[bytes | None], Any] = value_of,
    blind: Collection[str] = (),
) -> None:
    """Compare the outputs and states of all tasks with what models say.

    Args:
        models: by sub-topology.
        stores: how to read the entries of a changelog, by its store.
        decode: values of inputs and outputs.
        blind: topics whose values are not compared.

    Raises:
        Wrong: says what differs.
    """
    states: dict[str, dict[Any, Any]] = defaultdict(dict)
    expected: list[Sent] = []
    refused = [(t, (k or b"").decode(), decode(v)) for t, k, v in world.faults.rejected]
    for part in world.graph.sub_topologies:
        topics = [source.topic for source in part.sources]
        for number in range(world.counts[part.name]):
            messages = inputs_of(world.log, topics, number)
            found = models[part.name]([seen(message, decode) for message in messages], refused)
            expected += found.sent
            for store, entries in found.states.items():
                states[store].update(entries)
    topics = {topic for topic, *_ in expected} | _sinks(world)
    compare_sent(world.log, expected, topics, decode, blind)
    compare_states(world, states, stores or {})


def compare_sent(
    log: FaultyKafka,
    expected: Sequence[Sent],
    topics: Iterable[str],
    decode: Callable[[bytes | None], Any] = value_of,
    blind: Collection[str] = (),
) -> None:
    """Compare outputs, key by key in their order."""
    wanted, found = defaultdict[Any, list[Any]](list), defaultdict[Any, list[Any]](list)
    for topic, key, value in expected:
        wanted[topic, key].append(value)
    for topic in topics:
        for partition in log.partitions_of(topic):
            for message in log.logs[partition].messages:
                _, key, value, _ = seen(message, decode)
                found[topic, key].append(None if topic in blind else value)
    for name in sorted(wanted.keys() | found.keys()):
        if wanted[name] != found[name]:
            raise Wrong(f"{name[0]} of {name[1]!r}: {found[name]}, expected {wanted[name]}")


def compare_states(
    world: World, states: Mapping[str, Mapping[Any, Any]], stores: Mapping[str, Decode]
) -> None:
    """Compare changelogs with what models say."""
    for part in world.graph.sub_topologies:
        for store in part.stores:
            if store.name not in stores:
                continue
            found: dict[Any, Any] = {}
            for number in range(world.counts[part.name]):
                entries = compacted(world.log, store.changelog, number)
                found |= dict(stores[store.name](k, v) for k, v in entries.items())
            found.pop(None, None)
            if found != states[store.name]:
                raise Wrong(
                    f"the changelog of {store.name} says {found}, expected {states[store.name]}"
                )


def _sinks(world: World) -> set[str]:
    return {topic for part in world.graph.sub_topologies for topic in part.sink_topics}


def expect(model: Model, *parts: str, **options: Any) -> Callable[[World], None]:
    """Return a judge of a topology of one sub-topology."""

    def judge(world: World) -> None:
        compare(world, {part.name: model for part in world.graph.sub_topologies}, **options)

    return judge
