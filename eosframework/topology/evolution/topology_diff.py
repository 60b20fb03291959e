"""The differences between a topology and the one that ran before."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any

from eosframework.serialization.yaml_text import named_rows, read_table
from eosframework.topology.evolution.recorded import (
    FOREIGN_JOIN,
    HELD_RECORDS,
    SUBSCRIPTIONS,
    WATERMARKS,
    RecordedPart,
    RecordedStore,
    RecordedTopology,
)
from eosframework.topology.spec.keyed_spec import windows_in_words
from eosframework.topology.spec.loaded import KeptName
from eosframework.topology.spec.topology_spec import matches
from eosframework.txnid import InternalTopic

_GROUP_ADDED, _ROWS_UNJOINED = "group_added", "rows_unjoined"
"""The rules of steps that are added to a table with rows."""


class Verdict(StrEnum):
    """The procedure that a change needs, the easiest first."""

    ROLLING = "rolling"
    """Workers may be replaced one after the other."""
    APPLY = "apply"
    """`eosframework apply` first; then as ROLLING."""
    CONFIRM = "confirm"
    """`eosframework apply` first, which records that the change is meant; then as ROLLING."""
    STOP = "stop"
    """All workers of the old topology must stop before one of the new topology starts."""
    DRAIN = "drain"
    """As STOP, and the old topology must first read its own repartition topics to the end."""
    ACCEPT = "accept"
    """As STOP, and the state that would be dropped must be accepted with `apply --accept`."""
    OTHER_STORE = "other_store"
    """The store needs another name, or must be deleted: its content does not fit."""
    OTHER_APPLICATION = "other_application"
    """The application needs another name and a backfill."""

    @property
    def is_refused(self) -> bool:
        """True if workers never start with the change."""
        return self in (Verdict.OTHER_STORE, Verdict.OTHER_APPLICATION)

    @property
    def stops_all(self) -> bool:
        """True if workers do not start with the change while others run."""
        return self in (Verdict.STOP, Verdict.DRAIN, Verdict.ACCEPT)


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of change.

    Args:
        name: of the rule.
        change: the changed thing, for the documentation.
        why: the reason for the verdict.
        next: the steps to take.
        next_of: other steps where the store belongs to a `table` source, which has no `store:`, to
            a `join`, which has no `upgrade:`, or to the `group` of a table, which cannot start
            empty.
        seen: the reason why a worker's start does not detect it; None: it does.
    """

    name: str
    change: str
    verdict: Verdict
    why: str
    next: str
    next_of: Mapping[str, str] = field(default_factory=dict[str, str])
    seen: str | None = None


@cache
def rules() -> dict[str, Rule]:
    """Return the shipped rules, by name."""
    package = "eosframework.topology.evolution"
    return named_rows(read_table(package, "rules.yaml", dict[str, Any]), Rule)


def as_markdown() -> str:
    """Return the table for docs/howto/upgrades.md."""
    lines = ["| change | asks for | why | what to do |", "| --- | --- | --- | --- |"]
    for rule in sorted(rules().values(), key=lambda rule: list(Verdict).index(rule.verdict)):
        why = rule.why if rule.seen is None else f"{rule.why} ({rule.seen})"
        other = "".join(f"; for a {holder}: {text}" for holder, text in rule.next_of.items())
        lines.append(f"| {rule.change} | **{rule.verdict}** | {why} | {rule.next}{other} |")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Args:
        change: name of the rule.
        kind: sub-topology, store or topic.
        name: of the sub-topology, store or topic.
        found: the difference, in words.
        holder: of the store: `table`, `join`, `group`, or empty for other steps.
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


def follow_rows(changes: Sequence[Change]) -> bool:
    """Return whether a change is what it is because tables have rows, as far as is known."""
    return any(change.change in (_GROUP_ADDED, _ROWS_UNJOINED) for change in changes)


def changes_between(
    before: RecordedTopology,
    now: RecordedTopology,
    *,
    partitions: Mapping[str, int],
    upgradable: Collection[str],
    declared: Mapping[str, KeptName],
    matched: Mapping[str, Collection[str]],
    unwritten: Collection[str] = (),
) -> list[Change]:
    """Return the differences, the most demanding first.

    Args:
        before: the topology that ran.
        now: the topology to run.
        partitions: of the topics that exist.
        upgradable: stores for which `now` declares an upgrade of older values.
        declared: by store and repartition topic of `now`, where its name is stated.
        matched: by sub-topology of `now`, the topics that its pattern matches.
        unwritten: stores whose changelogs never had a record, not even of an open transaction.
    """
    names = _Names(before, now, declared, unwritten)
    found = [
        *_moved(before.parts, now.parts, matched),
        *(change for name in {*before.parts, *now.parts} for change in _of_part(name, before, now)),
        *(
            change
            for name in {*before.stores, *now.stores}
            for change in _of_store(names, name, upgradable)
        ),
        *(
            change
            for name in {*before.repartitions, *now.repartitions}
            for change in _of_repartition(names, name, partitions.get(name, 0))
        ),
    ]
    order = [*Verdict]
    found.sort(key=lambda c: (-order.index(c.verdict), c.subject, c.change))
    return found


def _moved(
    before: Mapping[str, RecordedPart],
    now: Mapping[str, RecordedPart],
    matched: Mapping[str, Collection[str]],
) -> Iterator[Change]:
    readers = {topic: name for name, part in before.items() for topic in part.sources}
    patterns = {topic.strip("/"): name for topic, name in readers.items() if topic.startswith("/")}
    for name, part in now.items():
        for topic in (*part.sources, *matched.get(name, ())):
            matching = (reader for pattern, reader in patterns.items() if matches(pattern, topic))
            reader = readers.get(topic) or next(matching, name)
            if reader != name:
                found = f"sub-topology {name!r} reads it, before {reader!r} did"
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


@dataclass(frozen=True, slots=True)
class _Names:
    """The owners of names in two topologies."""

    before: RecordedTopology
    now: RecordedTopology
    declared: Mapping[str, KeptName]
    unwritten: Collection[str]

    def heir(self, name: str) -> str | None:
        """Return the only store that has the functions of an earlier store, and had others."""
        old = self.before.stores[name]
        found = [
            other
            for other, new in self.now.stores.items()
            if other != name and _is_same_step(old, new) and not self._is_kept(other)
        ]
        return found[0] if len(found) == 1 else None

    def _is_kept(self, name: str) -> bool:
        old = self.before.stores.get(name)
        return old is not None and _is_same_step(old, self.now.stores[name])

    def is_followed(self, name: str) -> bool:
        """Return whether steps rely on the rows that a store of a table, or their own, has had."""
        store = self.now.stores[name]
        is_base = any(name in other.follows for other in self.now.stores.values())
        return is_base or bool(store.follows) or store.kind == FOREIGN_JOIN

    def lines(self, name: str) -> str:
        """Return the lines that give an earlier store back to the step that made it."""
        heir = self.heir(name)
        found = self._stated(name, heir)
        if not found:
            return ""
        return f". The step that made it is now that of store {heir!r}: to keep it, write {found}"

    def lines_of_heir(self, heir: str) -> str:
        """Return the lines that give a step the store back that it made under another name."""
        old = next((name for name in self._gone if self.heir(name) == heir), None)
        found = "" if old is None else self._stated(old, heir)
        return f". Its step made store {old!r}: to keep that, write {found}" if found else ""

    def lines_of_rows(self, names: Collection[str]) -> str:
        """Return the lines that give stores with rows the names back that they had."""
        return next(
            (lines for name in names if name in self._gone and (lines := self.lines(name))), ""
        )

    @property
    def _gone(self) -> list[str]:
        gone = self.before.stores.keys() - self.now.stores.keys()
        return sorted(name for name in gone if not self.before.stores[name].removed)

    def _stated(self, name: str, heir: str | None) -> str:
        kept = None if heir is None else self.declared.get(heir)
        if heir is None or kept is None:
            return ""
        found = [f"{kept.line(name)} in {kept.place}"]
        old, new = self.before.stores[name].topics, self.now.stores[heir].topics
        if len(old) == len(new) == 1 and old != new and (group := self.declared.get(new[0])):
            topic = InternalTopic.parse(old[0])
            found += [f"{group.line(topic.part)} in {group.place}"] if topic else []
        return " and ".join(found)


def _is_same_step(old: RecordedStore, new: RecordedStore) -> bool:
    if old.kind != new.kind or old.window != new.window:
        return False
    if not new.functions:
        return not old.functions and old.topics == new.topics
    return old.has(new.functions[-1])


def _of_store(names: _Names, name: str, upgradable: Collection[str]) -> Iterator[Change]:
    old, new = names.before.stores.get(name), names.now.stores.get(name)
    subject = "store", name
    if old is not None and old.kind == HELD_RECORDS and not old.removed:
        yield from _of_held_records(name, old, new)
    elif new is None:
        if old is not None and not old.removed:
            is_kept = old.kind != WATERMARKS
            found = f"removed from sub-topology {old.sub_topology}{names.lines(name)}"
            rule = "store_removed" if is_kept else "watermarks_removed"
            yield Change(rule, *subject, found, old.holder)
    elif old is None:
        yield _added(names, name, new)
    elif old.changelog_id != new.changelog_id:
        rule = "rows_forgotten" if names.is_followed(name) else "store_emptied"
        yield Change(rule, *subject, "its changelog is not the one that was written")
    elif old.follows != new.follows:
        found = f"follows the rows of {_listed(new.follows)}, before of {_listed(old.follows)}"
        lines = names.lines_of_rows({*old.follows} - {*new.follows})
        yield Change("rows_replaced", *subject, f"{found}{lines}")
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
        if old.kind == new.kind and old.version == new.version and old.functions:
            yield from _of_functions(names, name, old, new)


def _added(names: _Names, name: str, new: RecordedStore) -> Change:
    former = (store for store in new.follows if store in names.before.stores)
    known = [store for store in former if store not in names.unwritten]
    found = f"added to sub-topology {new.sub_topology}"
    rule = "store_added"
    if known and (new.is_grouped or new.kind == SUBSCRIPTIONS):
        rule = _GROUP_ADDED if new.is_grouped else _ROWS_UNJOINED
        found += f", and table store {_listed(known)} has rows of earlier runs"
        found += names.lines_of_heir(name)
    return Change(rule, "store", name, found)


def _of_functions(
    names: _Names, name: str, old: RecordedStore, new: RecordedStore
) -> Iterator[Change]:
    known = old.functions[-1]
    made: Mapping[str, str] = new.functions[-1] if new.functions else {}
    if old.has(made):
        return
    differing = sorted(role for role in {*made, *known} if made.get(role) != known.get(role))
    found = ", ".join(
        f"{role}: {made.get(role, 'none')}, before {known.get(role, 'none')}" for role in differing
    )
    lines = names.lines(name)
    # A renamed function may be confirmed; rows through another step were not added, or stay.
    moved = new.takes_rows and made.keys() != known.keys()
    rule = "store_taken" if lines else "rows_replaced" if moved else "store_function"
    yield Change(rule, "store", name, f"{found}{lines}", new.holder)


def _of_held_records(name: str, old: RecordedStore, new: RecordedStore | None) -> Iterator[Change]:
    subject = "store", name
    if new is None:
        found = f"{old.sub_topology} runs records as they arrive, before in order of time"
        yield Change("reorder_removed", *subject, found)
        return
    if old.changelog_id != new.changelog_id:
        yield Change("store_emptied", *subject, "its changelog is not the one that was written")
        return
    if gone := sorted(_held_topics(old) - {branch.partition(": ")[0] for branch in new.branches}):
        found = f"{new.sub_topology} does not read {_listed(gone)} any more"
        yield Change("reorder_removed", *subject, found)
        return
    for branch in sorted(old.branches.keys() & new.branches.keys()):
        if old.branches[branch] != new.branches[branch]:
            was, now = "in order of time", "as they arrive"
            if new.branches[branch]:
                was, now = now, was
            found = f"{branch} gets records {now}, before {was}"
            yield Change("reorder_changed", *subject, found)


def _held_topics(store: RecordedStore) -> set[str]:
    """Return the topics whose records a reorder step holds."""
    return {branch.partition(": ")[0] for branch, is_held in store.branches.items() if is_held}


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


def _of_repartition(names: _Names, name: str, partitions: int) -> Iterator[Change]:
    old, new = names.before.repartitions.get(name), names.now.repartitions.get(name)
    subject = "topic", name
    if old is None:
        return
    if new is None:
        yield Change("repartition_removed", *subject, "nothing reads it any more")
        return
    if (old.key, old.value) != (new.key, new.value):
        found = f"keys and values are {new.key} and {new.value}, before {old.key} and {old.value}"
        yield Change("repartition_format", *subject, found)
    for other, found in names.now.repartitions.items():
        is_older = names.before.repartitions.get(other)
        moved = old.made_by == found.made_by and (not is_older or is_older.made_by != old.made_by)
        if old.made_by != new.made_by and moved:
            group = names.declared.get(other)
            topic = InternalTopic.parse(name)
            line = "" if group is None or topic is None else f": {group.line(topic.part)}"
            found = f"keys are made by {new.made_by}, before by {old.made_by}, as now in {other}"
            yield Change("repartition_taken", *subject, f"{found}{line}")
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
