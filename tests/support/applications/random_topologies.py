"""Random topologies over two topics of JSON, with random records for them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework import Topology, hopping, session, sliding, tumbling
from eosframework.topology.dsl.declarations import dead_letter

BEGIN_MS = 1_767_225_600_000

Built = Callable[[Topology, str, random.Random], None]


def is_kept(value: Any) -> bool:
    """Drop one of seven."""
    return value["n"] % 7 != 3


def marked(value: Any) -> Any:
    """Fail for one of eleven."""
    if value["n"] % 11 == 5:
        raise ValueError("five of eleven")
    return {**value, "marked": True}


def number_of(value: Any) -> int:
    """Return a number that identifies the record in a sum."""
    return 3 ** (value["n"] % 30)


def nothing() -> list[int]:
    """Return an empty story."""
    return []


def longer(story: list[int], value: Any) -> list[int]:
    """Return a story with one number more."""
    return [*story, value["n"]]


def other_key(record: Any) -> str:
    """Return a key that groups records in another way."""
    return record.value["other"]


def foreign_key(record: Any) -> str:
    """Return a key of the other topic."""
    return "abc"["pqr".index(record.value["other"])]


def remainder(value: Any) -> int:
    """Return one of five numbers."""
    return value["n"] % 5


def both(left: Any, right: Any) -> list[Any]:
    """Return the numbers of both sides."""
    return [left and left["n"], right and right["n"]]


def sums(app: Topology, name: str, draw: random.Random) -> None:
    """Sums and stories of each key, each one or at a commit."""
    grouped = app.stream(f"{name}.left", key=str, value="json").filter(is_kept).group_by_key()
    if draw.random() < 0.5:
        kept = grouped.aggregate(nothing, longer, store="stories")
    else:
        emit: Any = draw.choice(["each", "commit"])
        kept = grouped.sum(number_of, store="sums", emit=emit)
    kept.to(f"{name}.out", value="json")


def windows(app: Topology, name: str, draw: random.Random) -> None:
    """Sums in windows, with or without a repartition topic before."""
    stream = app.stream(f"{name}.left", key=str, value="json")
    stream = stream.map_values(marked).on_error(dead_letter(f"{name}.dead"))
    keyed = stream.group_by(other_key, key=str) if draw.random() < 0.5 else stream.group_by_key()
    kinds: list[Any] = [
        tumbling("100ms"),
        hopping("100ms", every="50ms"),
        session("40ms"),
        sliding("60ms"),
    ]
    windowed = keyed.window(draw.choice(kinds), grace=draw.choice(["0ms", "50ms"]))
    emit: Any = draw.choice(["each", "close", "close"])
    windowed.sum(number_of, store="sums", emit=emit).to(f"{name}.out")


def joined(app: Topology, name: str, draw: random.Random) -> None:
    """A join of streams, or with a table."""
    left = app.stream(f"{name}.left", key=str, value="json")
    if draw.random() < 0.5:
        right = app.stream(f"{name}.right", key=str, value="json")
        how: Any = draw.choice(["inner", "outer"])
        result = left.join_within(right, both, "60ms", how=how, grace="20ms", store="met")
    else:
        result = left.join(app.table(f"{name}.right", key=str, value="json"), both, how="left")
    result.to(f"{name}.out", value="json")


def foreign(app: Topology, name: str, draw: random.Random) -> None:
    """A join of tables by a foreign key."""
    left, right = (app.table(f"{name}.{side}", key=str, value="json") for side in SIDES)
    how: Any = draw.choice(["inner", "left"])
    left.join(right, both, key=foreign_key, how=how).to(f"{name}.out", value="json")


def grouped(app: Topology, name: str, draw: random.Random) -> None:
    """Rows of a table, counted or added up in the groups that they move between."""
    groups = app.table(f"{name}.left", key=str, value="json").group_by(other_key, key=str)
    counted = groups.count() if draw.random() < 0.5 else groups.sum(number_of)
    counted.to(f"{name}.out", value="json")


def combined(app: Topology, name: str, draw: random.Random) -> None:
    """Values of a key: of two streams, the greatest, or the different ones."""
    left, right = (app.stream(f"{name}.{side}", key=str, value="json") for side in SIDES)
    inputs = {left.group_by_key(): longer, right.group_by_key(): longer}
    values = {
        "cogroup": lambda: app.cogroup(inputs, initial=nothing, name="both"),
        "top": lambda: left.group_by_key().top(3, by=number_of),
        "distinct": lambda: left.group_by_key().distinct(by=remainder, limit=10),
    }
    values[draw.choice([*values])]().to(f"{name}.out", value="json")


SIDES = ("left", "right")

KINDS: Mapping[str, Built] = {
    "sums": sums,
    "windows": windows,
    "joined": joined,
    "foreign": foreign,
    "grouped": grouped,
    "combined": combined,
}


@dataclass
class RandomApplication:
    """A topology of one kind, drawn from a seed."""

    name: str
    kind: str
    seed: int
    draw: random.Random = field(init=False)
    topology: Topology = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(f"{self.kind} {self.seed}")
        self.topology = Topology(self.name)
        KINDS[self.kind](self.topology, self.name, self.draw)
        self._at, self._n = BEGIN_MS, 0

    def records(self, count: int) -> list[tuple[str, bytes, bytes, int]]:
        """Return topic, key, value and timestamp of records, partly out of order."""
        found: list[tuple[str, bytes, bytes, int]] = []
        for _ in range(count):
            self._at += self.draw.choice([0, 1, 5, 10, 40])
            self._n += 1
            time = self._at - self.draw.choice([0, 0, 0, 0, 30, 120])
            value = json.dumps({"n": self._n, "other": self.draw.choice("pqr")}).encode()
            side = self.draw.choice(["left", "left", "right"])
            found.append((f"{self.name}.{side}", self.draw.choice("abc").encode(), value, time))
        return found
