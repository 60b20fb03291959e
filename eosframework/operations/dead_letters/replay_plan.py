"""The plan of a replay: target topics and numbers of dead letters, without side effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eosframework.errors import StartRefused
from eosframework.operations.dead_letters.dead_letter_reader import (
    DeadLetters,
    RecordGone,
    ReplayedByPartition,
)
from eosframework.operations.dead_letters.selection import Choice
from eosframework.topology.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class Target:
    """A topic from which the records of one input topic can be processed again.

    Args:
        topic: its name.
        sub_topology: the sub-topology that reads it.
        is_own: only the application reads it.
    """

    topic: str
    sub_topology: str
    is_own: bool


def targets(graph: Graph) -> Mapping[str, Target]:
    """Return the target of each input topic that a dead letter may name.

    It is the application's replay topic for this input if declared, else the input topic itself.
    """
    own = {repartition.topic for repartition in graph.repartitions}
    found = {
        source.topic: Target(source.topic, part.name, source.topic in own)
        for part in graph.sub_topologies
        for source in part.sources
    }
    for part in graph.sub_topologies:
        for source in part.sources:
            if source.retry_of is not None and source.retry_of.delay_ms is None:
                found[source.retry_of.topic] = found[source.topic]
    return found


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The dead letters of a selection.

    Args:
        counts: number by target.
        already: number of replayed ones; they are left out.
        unread_topics: by topic that no source reads, such as the changelog of a window that failed
            when it closed: the number of dead letters left out.
        gone: texts about dead letters whose records are gone; they are left out.
    """

    counts: Counter[Target] = field(default_factory=Counter[Target])
    already: int = 0
    unread_topics: Counter[str] = field(default_factory=Counter[str])
    gone: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Number of dead letters to replay."""
        return self.counts.total()

    @property
    def by_topic(self) -> list[tuple[Target, int]]:
        """Targets with their counts, by topic."""
        return sorted(self.counts.items(), key=lambda counted: counted[0].topic)

    def as_data(self, application: str, done: int, *, dry_run: bool) -> dict[str, Any]:
        """Return it as plain data, for JSON.

        Args:
            application: its name.
            done: number of dead letters that were replayed.
            dry_run: the replay was only planned.
        """
        return {
            "application": application,
            "dry_run": dry_run,
            "chosen": self.total,
            "replayed": done,
            "replayed_before": self.already,
            "into": {target.topic: count for target, count in self.by_topic},
            "left_out": dict(self.unread_topics),
            "gone": list(self.gone),
        }

    def lines(self, done: int, *, dry_run: bool) -> list[str]:
        """Return the plan as lines of text; see `as_data`."""
        verb = "would be replayed" if dry_run else "chosen"
        lines = [f"{self.total:,} dead letters {verb}, {self.already:,} were replayed before"]
        lines += [
            f"  {count:,} into {target.topic}, read by {target.sub_topology}"
            for target, count in self.by_topic
        ]
        lines += [
            f"  {count:,} of {topic} are left out: not an input of the topology"
            for topic, count in sorted(self.unread_topics.items())
        ]
        lines += [f"  {text}" for text in self.gone]
        if not dry_run:
            lines.append(f"{done:,} replayed")
        return lines

    def refuse_shared(self) -> None:
        """Raise if records would go to topics that other consumers may read.

        Raises:
            StartRefused: names the topics, and the alternatives.
        """
        shared = sorted(target.topic for target in self.counts if not target.is_own)
        if shared:
            raise StartRefused(
                f"replayed records would go to {', '.join(shared)}, where all consumers would see "
                f"them (with the header __eos.errors.replayed). To accept that, give "
                f"--into-source; for a replay topic that only this application reads, declare "
                f"`replay: true` next to dead_letter and run `eosframework apply`"
            )


def plan_replay(
    letters: DeadLetters, choice: Choice, targets: Mapping[str, Target], marked: ReplayedByPartition
) -> ReplayPlan:
    """Count the dead letters that a replay would send; changes nothing.

    Raises:
        ClusterUnreachable: the cluster did not answer.
    """
    counts: Counter[Target] = Counter()
    unread_topics: Counter[str] = Counter()
    gone: list[str] = []
    already = 0
    for partition, batch in letters.batches():
        marks = marked.get(partition)
        for letter, _ in batch:
            if not choice.takes(letter):
                continue
            target = targets.get(letter.origin.topic)
            if target is None:
                unread_topics[letter.origin.topic] += 1
            elif marks is not None and letter.offset in marks:
                already += 1
            else:
                try:
                    letters.whole(letter)
                except RecordGone as error:
                    gone.append(str(error))
                else:
                    counts[target] += 1
    return ReplayPlan(counts, already, unread_topics, tuple(gone))
