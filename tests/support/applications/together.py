"""A topology whose outputs and rows are decided together, and a reader that compares both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.support.applications.pipeline import number_in
from tests.support.applications.tables import TablesWorld

TOGETHER = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to:
      - {topic: NAME.doubled, value: json}
      - table: doubled
        model: "tests.support.applications.rows:Number"
        value: json
        commit: together
"""


CHECKED = TOGETHER.replace("steps:", "on_error: POLICY\n    steps:")
"""The same with a policy, for a table with constraints."""


@dataclass(frozen=True)
class Seen:
    """What independent readers found: numbers of the input, the output topic, and the table.

    Args:
        only_output: outputs that have no row.
        only_row: rows that have no output.
    """

    lost: Counter[int]
    doubled: Counter[int]
    only_output: Counter[int]
    only_row: Counter[int]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.only_output or self.only_row)


class TogetherWorld(TablesWorld):
    """One application that writes each number, doubled, to a topic and a table."""

    def seen(self, *left_out: int) -> Seen:
        """Compare input, outputs and rows.

        Args:
            left_out: numbers that have no result.
        """
        fed = map(number_in, self.read(self.source))
        expected = Counter(2 * n for n in fed if n not in left_out)
        outputs = Counter(number_in(message) for message in self.read(f"{self.name}.doubled"))
        rows = Counter(n for (n,) in self.see("SELECT n FROM doubled"))
        return Seen(
            lost=expected - (outputs & rows),
            doubled=(outputs - expected) + (rows - expected),
            only_output=outputs - rows,
            only_row=rows - outputs,
        )
