"""A topology that counts in windows, and an independent verifier of what goes out when they close.

The input is in order, so a window closes with the first record behind it, and the last ones when
nothing comes any more. Each has to go out once, with every record that is in it. A window of seven
records is complete with each third record of its key.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

from tests.support.applications.pipeline import Pipeline, number_in

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  counted:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count:
          window: {tumbling: 100ms, late: NAME.late, close_when_idle: 6s}
          emit: close
    to: {topic: NAME.counted}
  visits:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - count:
          window: {session: 20ms, late: NAME.late, close_when_idle: 6s}
          emit: close
    to: {topic: NAME.visits}
  sevens:
    from: numbers
    steps:
      - group_by: {by: "tests.support.applications.functions:tens", key: string}
      - sum: {of: "tests.support.applications.functions:number_of", window: {records: 7, step: 3}}
    to: {topic: NAME.sevens}
"""
"""Of each key there is a record every 10 ms, so its visits last until nothing is fed."""


class Windowed(Pipeline):
    """The application, its workers, and what its outputs must say."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        super().__init__(
            bootstrap_servers,
            name,
            directory,
            topology=TOPOLOGY,
            outputs={"counted": 1, "visits": 1, "sevens": 1, "late": 1},
            partitions=1,
        )
        self.state = directory / "state"
        self.apply()

    @property
    def keeping(self) -> list[str]:
        """Settings that keep the stores in this pipeline's directory."""
        return [f"state.directory={self.state}", "worker.session_timeout_seconds=6"]

    def results(self, topic: str) -> list[tuple[str, int, int, int]]:
        """Return key, start, end and value of what went to a topic."""
        found: list[tuple[str, int, int, int]] = []
        for message in self.read(f"{self.name}.{topic}"):
            result = json.loads(message.value() or b"")
            key = (message.key() or b"").decode()
            found.append((key, result["start"], result["end"], result["value"]))
        return found

    def is_complete(self) -> bool:
        """Tell whether every window and visit has gone out, by the number of records in them."""
        return len(self.results("sevens")) >= self.expected_sevens().total() and all(
            sum(value for *_, value in self.results(topic)) >= self.fed
            for topic in ("counted", "visits")
        )

    def expected_sevens(self) -> Counter[tuple[str, int, int, int]]:
        """Return the sums of the last seven numbers of each key, after each third one."""
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        found: Counter[tuple[str, int, int, int]] = Counter()
        for message in self.read(self.source):
            number = number_in(message)
            of_key = numbers[str(number % 10)]
            of_key.append(number)
            if len(of_key) % 3 == 0:
                start = max(0, len(of_key) - 7)
                found[str(number % 10), start, len(of_key), sum(of_key[-7:])] += 1
        return found

    def findings(self) -> list[str]:
        """What is wrong in the windows that went out."""
        expected: Counter[tuple[str, int]] = Counter()
        for message in self.read(self.source):
            number, (_, at) = number_in(message), message.timestamp()
            expected[str(number % 10), at - at % 100] += 1
        results = self.results("counted")
        found = [f"{window}: went out {n} times" for window, n in repeated(results).items()]
        counted = {(key, start): value for key, start, _, value in results}
        found += [
            f"window {window}: {counted.get(window)} of {count}"
            for window, count in expected.items()
            if counted.get(window) != count
        ]
        if len(counted) != len(expected):
            found.append(f"{len(counted)} windows went out, {len(expected)} were fed")
        visits = self.results("visits")
        found += [f"visit {visit}: went out {n} times" for visit, n in repeated(visits).items()]
        if sum(value for *_, value in visits) != self.fed:
            found.append(f"visits of {sum(v for *_, v in visits)} records, {self.fed} were fed")
        sevens = Counter(self.results("sevens"))
        found += [f"sevens: {r} is missing" for r in self.expected_sevens() - sevens]
        found += [f"sevens: {r} is too much" for r in sevens - self.expected_sevens()]
        if late := self.read(f"{self.name}.late"):
            found.append(f"{len(late)} records were late")
        return found


def repeated(results: list[tuple[str, int, int, int]]) -> dict[tuple[str, int], int]:
    """Return the windows that went out more than once."""
    times = Counter((key, start) for key, start, _, _ in results)
    return {window: count for window, count in times.items() if count > 1}
