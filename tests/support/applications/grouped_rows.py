"""Aggregates of a grouped table, and an independent verifier of its outputs.

The rows of 40 keys change, move between groups and are deleted. Every change of a group's count is
sent, so the counts of a group have to change in steps of one, from 1 on, and never below 0.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from eosframework import Record
from tests.support.applications.pipeline import Pipeline

HERE = __name__
ROWS = 40
GROUPS = 6

TOPOLOGY = f"""\
application: NAME
sources:
  rows: {{topic: NAME.in, key: string, value: json, table: true}}
streams:
  groups:
    from: rows
    steps:
      - group_by: {{by: "{HERE}:group_of", key: string, value: json}}
  counts: {{from: groups, steps: [{{count: {{}}}}], to: {{topic: NAME.counts, value: json}}}}
  sums:
    from: groups
    steps: [{{sum: {{of: "{HERE}:number_of", value: integer, emit: commit}}}}]
    to: {{topic: NAME.sums, value: json}}
  seen:
    from: groups
    steps:
      - aggregate:
          initial: "{HERE}:nothing"
          add: "{HERE}:with_row"
          subtract: "{HERE}:without_row"
    to: {{topic: NAME.seen, value: json}}
"""

Row = dict[str, Any]


def group_of(record: Record[str, Row]) -> str | None:
    return record.value["group"]


def number_of(row: Row) -> int:
    return row["n"]


def nothing() -> list[int]:
    return []


def with_row(seen: list[int], row: Row) -> list[int]:
    return sorted([*seen, row["n"]])


def without_row(seen: list[int], row: Row) -> list[int] | None:
    seen.remove(row["n"])
    return seen or None


class GroupedRows(Pipeline):
    """The application, its workers, and what its outputs must say."""

    def __init__(
        self, bootstrap_servers: str, name: str, directory: Path, seed: int, **options: Any
    ) -> None:
        outputs = {"counts": 1, "sums": 1, "seen": 1}
        super().__init__(
            bootstrap_servers, name, directory, topology=TOPOLOGY, outputs=outputs, **options
        )
        self._draw = random.Random(seed)
        self._rows: dict[str, Row | None] = {}
        self.state = directory / "state"
        self.apply()

    @property
    def keeping(self) -> list[str]:
        """Settings that keep the stores, and let transactions end between the halves of a move."""
        return [
            f"state.directory={self.state}",
            "worker.session_timeout_seconds=6",
            "worker.batch_records=7",
            "worker.commit_interval_seconds=0.05",
        ]

    def feed(self, count: int) -> None:
        """Change `count` rows."""
        producer = self._producer = self._producer or self._new_producer()
        for n in range(self._fed, self._fed + count):
            row = self._draw.randrange(ROWS)
            group = self._draw.choice((None, *(f"group-{one}" for one in range(GROUPS))))
            value = None if self._draw.random() < 0.15 else {"n": n, "group": group}
            self._rows[f"row-{row}"] = value
            producer.produce(
                self.source,
                None if value is None else json.dumps(value).encode(),
                f"row-{row}".encode(),
                row % self.partitions,
                timestamp=1_700_000_000_000 + n,
            )
        assert producer.flush(60) == 0
        self._fed += count

    def findings(self) -> list[str]:
        """What is wrong in the outputs; the groups are those of the last row of each key."""
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for row in self._rows.values():
            if row is not None and row["group"] is not None:
                groups[row["group"]].append(row["n"])
        found: list[str] = []
        counts = self._values("counts")
        for group in {*counts, *groups}:
            steps = Counter(
                later - former
                for former, later in zip([0, *counts[group]], counts[group], strict=False)
            )
            if not steps.keys() <= {-1, 0, 1} or min(counts[group]) < 0:
                found.append(f"{group}: counts change by {dict(steps)}")
            for output, wanted in (
                ("counts", len(groups[group])),
                ("sums", sum(groups[group])),
                ("seen", sorted(groups[group]) or None),
            ):
                last = self._values(output)[group][-1]
                if last != wanted:
                    found.append(f"{output} of {group}: {last}, expected {wanted}")
        return found

    def _values(self, output: str) -> defaultdict[str, list[Any]]:
        values: defaultdict[str, list[Any]] = defaultdict(list)
        for message in self.read(f"{self.name}.{output}"):
            value = message.value()
            key = (message.key() or b"").decode()
            values[key].append(None if value is None else json.loads(value))
        return values
