"""What a replay would do, before anything is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from eosframework.errors import StartRefused
from eosframework.operations.dead_letters.dead_letter_reader import Letters, Marked
from eosframework.operations.dead_letters.selection import Choice
from eosframework.operations.dead_letters.targets import Target


@dataclass(frozen=True, slots=True)
class Survey:
    """The letters that a choice means.

    Args:
        counts: how many go to each target.
        already: how many were replayed before; they are left out.
        homeless: how many are left out by the topic that they name and nothing reads, such as the
            changelog of a window that failed when it closed.
    """

    counts: Counter[Target] = field(default_factory=Counter[Target])
    already: int = 0
    homeless: Counter[str] = field(default_factory=Counter[str])

    @property
    def total(self) -> int:
        """How many would be replayed."""
        return self.counts.total()

    @property
    def by_topic(self) -> list[tuple[Target, int]]:
        """The targets with their counts, by topic."""
        return sorted(self.counts.items(), key=lambda counted: counted[0].topic)

    def refuse_shared(self) -> None:
        """Raise if records would go to topics that others read, too.

        Raises:
            StartRefused: names them, and how to go on.
        """
        shared = sorted(target.topic for target in self.counts if not target.is_own)
        if shared:
            raise StartRefused(
                f"replayed records would go to {', '.join(shared)}, which whoever else reads it "
                f"would see as well (with the header __eos.errors.replayed). To accept that, give "
                f"--into-source; to have a topic for it that only this application reads, declare "
                f"`replay: true` beside dead_letter and run `eosframework apply`"
            )


def survey(
    letters: Letters, choice: Choice, targets: Mapping[str, Target], marked: Marked
) -> Survey:
    """Count what a replay would do; changes nothing.

    Raises:
        ClusterUnreachable: nobody answered.
    """
    counts: Counter[Target] = Counter()
    homeless: Counter[str] = Counter()
    already = 0
    for partition, batch in letters.batches():
        marks = marked.get(partition)
        for letter, _ in batch:
            if not choice.takes(letter):
                continue
            target = targets.get(letter.origin.topic)
            if target is None:
                homeless[letter.origin.topic] += 1
            elif marks is not None and letter.offset in marks:
                already += 1
            else:
                counts[target] += 1
    return Survey(counts, already, homeless)
