"""The judge: derives what must be there from the input, and reads what brokers show to everybody.

It shares nothing with the contestants, and asks the brokers without a proxy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import orjson
from confluent_kafka import Consumer, Message, TopicPartition

from benchmarks.faults.failures import FaultFailed
from benchmarks.inputs import PARTITIONS
from benchmarks.outputs import committed


@dataclass(frozen=True)
class Verdict:
    """The numbers of records that are not as exactly-once has them.

    Args:
        lost: missing in an output, though their offsets are committed.
        doubled: more than once in an output.
        torn: in one output and not in the other.
        reordered: read after a later record of their key, of their partition.
        miscounted: with another place among those of their key than they have.
        aborted: read, though their producer had aborted them.
        unexpected: of no input.
        stuck: missing, since nothing moved any more, or an open transaction keeps readers off.
    """

    lost: int = 0
    doubled: int = 0
    torn: int = 0
    reordered: int = 0
    miscounted: int = 0
    aborted: int = 0
    unexpected: int = 0
    stuck: int = 0

    def __str__(self) -> str:
        found = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return ", ".join(f"{name} {count}" for name, count in found if count) or "clean"

    def __add__(self, other: Verdict) -> Verdict:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Verdict(**sums)


Outputs = Mapping[str, Sequence[Message]]
"""By topic, what a reader gets of it, partition by partition in the order of the log."""


def read(bootstrap_servers: str, topics: Iterable[str]) -> dict[str, list[Message]]:
    """Read the committed records of topics to where they end now."""
    return {topic: list(committed(bootstrap_servers, topic)) for topic in topics}


def is_blocked(bootstrap_servers: str, topics: Iterable[str]) -> bool:
    """Return whether an open transaction keeps readers from the end of a topic."""
    partitions = [TopicPartition(topic, p) for topic in topics for p in range(PARTITIONS)]
    ends: list[list[int]] = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "judge",
                "isolation.level": isolation,
            }
        )
        ends.append([consumer.get_watermark_offsets(p, timeout=60)[1] for p in partitions])
        consumer.close()
    return ends[0] != ends[1]


def inputs_of(messages: Iterable[Message]) -> dict[int, bytes]:
    """Return the key of each input by its number, in the order of the log.

    Raises:
        FaultFailed: a number is there twice, so that the outputs show nothing.
    """
    found: dict[int, bytes] = {}
    for message in messages:
        n = orjson.loads(message.value() or b"")["n"]
        if n in found:
            raise FaultFailed(f"the input has the number {n} twice")
        found[n] = message.key() or b""
    return found


def is_complete(outputs: Outputs, inputs: int) -> bool:
    """Return whether each of so many inputs is in each output."""
    return all(len(_numbers(messages)) == inputs for messages in outputs.values())


def judge(
    outputs: Outputs, inputs: Mapping[int, bytes], aborted: set[bytes], *, is_stuck: bool
) -> Verdict:
    """Compare what was read with what must be there.

    Args:
        outputs: of the trial.
        inputs: the key of each input by its number, in the order of the log.
        aborted: stamps of records that their producer aborted.
        is_stuck: the contestant did not come to the end of the input, or a reader not to that of
            the outputs.
    """
    seen = [_numbers(messages) for messages in outputs.values()]
    missing = [inputs.keys() - found.keys() for found in seen]
    either = set[int]().union(*missing)
    torn = either - set(inputs).intersection(*missing)
    records = [record for messages in outputs.values() for record in _decoded(messages)]
    places = _places(inputs)
    return Verdict(
        lost=0 if is_stuck else len(either),
        doubled=sum(count - 1 for found in seen for n, count in found.items() if n in inputs),
        torn=0 if is_stuck else len(torn),
        reordered=sum(_reordered(messages, inputs) for messages in outputs.values()),
        miscounted=sum(r.get("count", places.get(r["n"])) != places.get(r["n"]) for r in records),
        aborted=sum(str(r.get("by")).encode() in aborted for r in records),
        unexpected=sum(n not in inputs for found in seen for n in found),
        stuck=len(either) if is_stuck else 0,
    )


def _decoded(messages: Iterable[Message]) -> Iterator[dict[str, int]]:
    for message in messages:
        yield orjson.loads(message.value() or b"")


def _numbers(messages: Iterable[Message]) -> Counter[int]:
    return Counter(record["n"] for record in _decoded(messages))


def _places(inputs: Mapping[int, bytes]) -> dict[int, int]:
    """Return the place of each number among those of its key."""
    counts: Counter[bytes] = Counter()
    found: dict[int, int] = {}
    for number, key in inputs.items():
        counts[key] += 1
        found[number] = counts[key]
    return found


def _reordered(messages: Sequence[Message], inputs: Mapping[int, bytes]) -> int:
    """Count the first appearances that come after a later number of their key."""
    newest: dict[tuple[int | None, bytes], int] = {}
    known: set[int] = set()
    found = 0
    for message, record in zip(messages, _decoded(messages), strict=True):
        n = record["n"]
        if n in known or n not in inputs:
            continue
        known.add(n)
        place = (message.partition(), inputs[n])
        found += n < newest.get(place, -1)
        newest[place] = max(n, newest.get(place, -1))
    return found
