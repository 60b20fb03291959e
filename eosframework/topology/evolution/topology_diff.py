"""The differences between a topology and the one that ran before."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eosframework.topology.evolution.recorded import (
    HELD_RECORDS,
    WATERMARKS,
    RecordedPart,
    RecordedRepartition,
    RecordedStore,
    RecordedTopology,
)
from eosframework.topology.evolution.rules import Verdict, rules
from eosframework.topology.spec.window_spec import windows_in_words


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Args:
        change: name of the rule.
        kind: sub-topology, store or topic.
        name: of the sub-topology, store or topic.
        found: the difference, in words.
        holder: of the store: `table`, `join`, or empty for other steps.
    """

    change: str
    kind: str
    name: str
    found: str
    holder: str = ""

    @property
    def subject(self) -> str:
        """The kind and name of the changed thing."""
        return f"{self.kind} {self.name}"

    @property
    def verdict(self) -> Verdict:
        """The procedure that the change needs."""
        return rules()[self.change].verdict

    @property
    def why(self) -> str:
        """The reason for the verdict."""
        return rules()[self.change].why

    @property
    def next(self) -> str:
        """The steps to take."""
        rule = rules()[self.change]
        return rule.next_of.get(self.holder, rule.next)

    def as_data(self) -> dict[str, Any]:
        """Return the change as plain data, for JSON."""
        return {
            "change": self.change,
            "subject": self.subject,
            "found": self.found,
            "verdict": self.verdict,
            "why": self.why,
            "next": self.next,
        }


def changes_between(
    before: RecordedTopology,
    now: RecordedTopology,
    *,
    partitions: Mapping[str, int],
    upgradable: Collection[str],
) -> list[Change]:
    """Return the differences, the most demanding first.

    Args:
        before: the topology that ran.
        now: the topology to run.
        partitions: of the topics that exist.
        upgradable: stores for which `now` declares an upgrade of older values.
    """
    found = [
        *_moved(before.parts, now.parts),
        *(change for name in {*before.parts, *now.parts} for change in _of_part(name, before, now)),
        *(
            change
            for name in {*before.stores, *now.stores}
            for change in _of_store(name, before.stores.get(name), now.stores.get(name), upgradable)
        ),
        *(
            change
            for name in {*before.repartitions, *now.repartitions}
            for change in _of_repartition(
                name,
                before.repartitions.get(name),
                now.repartitions.get(name),
                partitions.get(name, 0),
            )
        ),
    ]
    order = [*Verdict]
    found.sort(key=lambda c: (-order.index(c.verdict), c.subject, c.change))
    return found


def _moved(before: Mapping[str, RecordedPart], now: Mapping[str, RecordedPart]) -> Iterator[Change]:
    readers = {topic: name for name, part in before.items() for topic in part.sources}
    for name, part in now.items():
        for topic in part.sources:
            if readers.get(topic, name) != name:
                found = f"sub-topology {name!r} reads it, before {readers[topic]!r} did"
                yield Change("topic_moved", "topic", topic, found)


def _of_part(name: str, before: RecordedTopology, now: RecordedTopology) -> Iterator[Change]:
    old, new = before.parts.get(name), now.parts.get(name)
    subject = "sub-topology", name
    if old is None and new is not None:
        yield Change("part_added", *subject, f"reads {_listed(new.sources)}")
    elif new is None and old is not None:
        yield Change("part_removed", *subject, f"read {_listed(old.sources)}")
    elif old is not None and new is not None:
        if old.sources != new.sources:
            found = f"reads {_listed(new.sources)}, before {_listed(old.sources)}"
            yield Change("sources_changed", *subject, found)
        if added := sorted({*new.sinks} - {*old.sinks}):
            yield Change("outputs", *subject, f"writes {_listed(added)}")
        if texts := _difference(old.steps, new.steps):
            yield Change("steps", *subject, texts)


def _of_store(
    name: str,
    old: RecordedStore | None,
    new: RecordedStore | None,
    upgradable: Collection[str],
) -> Iterator[Change]:
    subject = "store", name
    if old is not None and old.kind == HELD_RECORDS and not old.removed:
        yield from _of_held_records(name, old, new)
    elif new is None:
        if old is not None and not old.removed:
            yield Change("store_removed", *subject, f"removed from sub-topology {old.sub_topology}")
    elif old is None:
        yield Change("store_added", *subject, f"added to sub-topology {new.sub_topology}")
    elif old.changelog_id != new.changelog_id:
        yield Change("store_emptied", *subject, "its changelog is not the one that was written")
    elif new.kind in (WATERMARKS, HELD_RECORDS):
        # Upstream tasks announce their times after each takeover, so older ones do no harm. A
        # reorder step is removed only when it holds nothing.
        if old.removed:
            yield Change("store_added", *subject, f"added to sub-topology {new.sub_topology}")
    elif old.removed:
        found = "the topology that ran last did without it"
        yield Change("store_returned", *subject, found, new.holder)
    else:
        for rule, found in _misread(old, new, name in upgradable):
            yield Change(rule, *subject, found, new.holder)


def _of_held_records(name: str, old: RecordedStore, new: RecordedStore | None) -> Iterator[Change]:
    subject = "store", name
    if new is None:
        found = f"{old.sub_topology} runs records as they arrive, before in order of time"
        yield Change("reorder_removed", *subject, found)
        return
    if old.changelog_id != new.changelog_id:
        yield Change("store_emptied", *subject, "its changelog is not the one that was written")
        return
    for branch in sorted(old.branches.keys() & new.branches.keys()):
        if old.branches[branch] != new.branches[branch]:
            was, now = "in order of time", "as they arrive"
            if new.branches[branch]:
                was, now = now, was
            found = f"{branch} gets records {now}, before {was}"
            yield Change("reorder_changed", *subject, found)


def _misread(old: RecordedStore, new: RecordedStore, upgradable: bool) -> Iterator[tuple[str, str]]:
    """Yield the rules that are violated because a store's bytes would be read as something else."""

    def was(what: str, of_old: object, of_new: object) -> str:
        return f"{what} {of_new}, before {of_old}"

    raised = new.version > old.version
    if old.key != new.key:
        yield "store_key", was("keys are", old.key, new.key)
    if old.window != new.window:
        yield (
            "store_window",
            was("made for", windows_in_words(old.window), windows_in_words(new.window)),
        )
    if not {*old.topics} & {*new.topics}:
        yield "store_moved", was("filled from", _listed(old.topics), _listed(new.topics))
    if new.version < old.version:
        yield "version_lowered", was("version", old.version, new.version)
    elif raised and not upgradable:
        yield "version_without_upgrade", was("version", old.version, new.version)
    elif raised:
        yield "store_version", was("version", old.version, new.version)
    if old.kind != new.kind and not (raised and upgradable and old.window == new.window is None):
        yield "store_kind", was("used by", old.kind, new.kind)
    elif old.value != new.value and not (raised and upgradable):
        yield "store_value", was("values are", old.value, new.value)


def _of_repartition(
    name: str, old: RecordedRepartition | None, new: RecordedRepartition | None, partitions: int
) -> Iterator[Change]:
    subject = "topic", name
    if old is None:
        return
    if new is None:
        yield Change("repartition_removed", *subject, "nothing reads it any more")
        return
    if (old.key, old.value) != (new.key, new.value):
        found = f"keys and values are {new.key} and {new.value}, before {old.key} and {old.value}"
        yield Change("repartition_format", *subject, found)
    if new.partitions not in (None, old.partitions) and partitions not in (0, new.partitions):
        found = f"{new.partitions} partitions are declared, and it has {partitions}"
        yield Change("repartition_partitions", *subject, found)


def _difference(old: Collection[str], new: Collection[str]) -> str:
    gone, come = (
        sorted({_SIDE.sub(r", \1 join", text) for text in texts})
        for texts in ({*old} - {*new}, {*new} - {*old})
    )
    return "; ".join([*(f"without {text}" for text in gone), *(f"with {text}" for text in come)])


_SIDE = re.compile(r", (?:left|right), (\w+), \S+(?=, on error )")
"""The part of a join's recorded text that differs between its sides; the user wrote one step."""


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)
