"""A topology with an aggregate of two streams, ranks and days of a zone, and its verifier.

Of each key the numbers of the input go to one stream or the other. The aggregate sends a result for
each of them, which counts one more; ranks and days are sent once, when their windows close.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.support.applications.pipeline import Pipeline, number_in
from tests.support.applications.windowed import repeated

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  low:
    from: numbers
    steps:
      - filter: "tests.support.applications.grouped:is_low"
      - group_by: {by: "tests.support.applications.functions:tens", key: string, name: low}
  high:
    from: numbers
    steps:
      - filter: "tests.support.applications.grouped:is_high"
      - group_by: {by: "tests.support.applications.functions:tens", key: string, name: high}
  met:
    from: [low, high]
    steps:
      - cogroup:
          initial: "tests.support.applications.grouped:nothing"
          add:
            - "tests.support.applications.grouped:add_low"
            - "tests.support.applications.grouped:add_high"
    to: {topic: NAME.met}
  best:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string, name: best}
      - top:
          n: 3
          by: "tests.support.applications.grouped:number"
          window: {tumbling: 100ms, close_when_idle: 6s}
          emit: close
    to: {topic: NAME.best}
  days:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string, name: days}
      - count:
          window: {tumbling: 1d, zone: ZONE, close_when_idle: 6s}
          emit: close
    to: {topic: NAME.days}
"""
ZONE = "Asia/Kolkata"
Met = dict[str, int]


def number(value: dict[str, int]) -> int:
    return value["n"]


def is_low(value: dict[str, int]) -> bool:
    return value["n"] % 20 < 10


def is_high(value: dict[str, int]) -> bool:
    return value["n"] % 20 >= 10


def nothing() -> Met:
    return {"low": 0, "high": 0}


def add_low(so_far: Met, value: dict[str, int]) -> Met:
    return {**so_far, "low": so_far["low"] + 1}


def add_high(so_far: Met, value: dict[str, int]) -> Met:
    return {**so_far, "high": so_far["high"] + 1}


class Grouped(Pipeline):
    """The application, its workers, and what its outputs must say."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY.replace("ZONE", ZONE),
            outputs={"met": 1, "best": 1, "days": 1},
            partitions=1,
        )
        self.state = directory / "state"
        self.apply()

    @property
    def keeping(self) -> list[str]:
        """Settings that keep the stores in this pipeline's directory."""
        return [f"state.directory={self.state}", "worker.session_timeout_seconds=6"]

    def results(self, topic: str) -> list[tuple[str, Any]]:
        """Return key and value of what went to a topic."""
        found = self.read(f"{self.name}.{topic}")
        return [((m.key() or b"").decode(), json.loads(m.value() or b"")) for m in found]

    def is_complete(self) -> bool:
        """Tell whether every record was met and is in a day and a rank that went out."""
        days = sum(result["value"] for _, result in self.results("days"))
        ranked = {(key, result["start"]) for key, result in self.results("best")}
        is_ranked = ranked >= self._windows().keys()
        return days >= self.fed and len(self.results("met")) >= self.fed and is_ranked

    def findings(self) -> list[str]:
        """What is wrong in the outputs."""
        found: list[str] = []
        met: defaultdict[str, list[Met]] = defaultdict(list)
        for key, value in self.results("met"):
            met[key].append(value)
        fed: Counter[tuple[str, str]] = Counter()
        days: Counter[tuple[str, int, int]] = Counter()
        for message in self.read(self.source):
            value, (_, at) = number_in(message), message.timestamp()
            key = str(value % 10)
            fed[key, "low" if value % 20 < 10 else "high"] += 1
            days[key, *day_of(at)] += 1
        for key, values in met.items():
            wanted = {kind: fed[key, kind] for kind in ("low", "high")}
            if values[-1] != wanted:
                found.append(f"key {key}: met {values[-1]}, fed {wanted}")
            if [sum(value.values()) for value in values] != [*range(1, len(values) + 1)]:
                found.append(f"key {key}: {len(values)} results do not count one more each")
        counted = [(k, r["start"], r["end"], r["value"]) for k, r in self.results("days")]
        found += [f"day {day}: went out {n} times" for day, n in repeated(counted).items()]
        if {(key, start, end): n for key, start, end, n in counted} != days:
            found.append(f"days are {counted}, fed were {days}")
        ranked = [(k, r["start"], r["end"], r["value"]) for k, r in self.results("best")]
        found += [f"rank {rank}: went out {n} times" for rank, n in repeated(ranked).items()]
        best = {(key, start): [each["n"] for each in values] for key, start, _, values in ranked}
        if best != {place: sorted(all_)[:-4:-1] for place, all_ in self._windows().items()}:
            found.append("ranks are not the three greatest of each window")
        return found

    def _windows(self) -> dict[tuple[str, int], list[int]]:
        windows: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for message in self.read(self.source):
            value, (_, at) = number_in(message), message.timestamp()
            windows[str(value % 10), at - at % 100].append(value)
        return windows


def day_of(at: int) -> tuple[int, int]:
    """Return start and end of the day of a time: Kolkata has never changed its clock since 1970."""
    local = datetime.fromtimestamp(at / 1000, ZoneInfo(ZONE))
    start = round(local.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()) * 1000
    return start, start + 86_400_000
