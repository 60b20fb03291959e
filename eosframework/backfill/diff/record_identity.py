"""The unit of comparison for each topic, derived from the topology.

records          every record has an equal one on the other side
last             the last value of each key: of a result that is updated, its final state counts
last of windows  the same by key and window
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from eosframework.errors import ConfigurationError
from eosframework.serialization.references import closest
from eosframework.serialization.serdes import JSON, WINDOW
from eosframework.topology.lowering.parts import Changes, known_changes
from eosframework.topology.renaming import written_topics
from eosframework.topology.spec.keyed_spec import Window, WindowKind
from eosframework.topology.spec.topology_spec import SinkSpec, TopologySpec


class CompareBy(StrEnum):
    """The unit of comparison of a topic."""

    RECORDS = "records"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a topic.

    Args:
        window: values are results of such windows, as `WindowResult` is written; None: they are
            not.
        note: reason for an unexpected choice; None: there is none.
    """

    by: CompareBy = CompareBy.RECORDS
    window: Window | None = None
    note: str | None = None

    @property
    def label(self) -> str:
        """Description for people."""
        if self.by is CompareBy.RECORDS:
            return "record by record"
        return f"last value of each key{'' if self.window is None else ' and window'}"

    @property
    def reach_ms(self) -> int:
        """Distance at which records outside a window's bounds may still extend it, for sessions."""
        is_session = self.window is not None and self.window.kind is WindowKind.SESSION
        return self.window.size_ms if self.window is not None and is_session else 0

    @property
    def closes_after_ms(self) -> int:
        """Time after its end at which a window closes."""
        return self.reach_ms + (0 if self.window is None else self.window.grace_ms)


def comparisons(
    spec: TopologySpec, given: Mapping[str, CompareBy], by: CompareBy | None = None
) -> dict[str, Comparison]:
    """Return the comparison of each topic that a topology writes and names.

    Args:
        spec: of a topology without errors.
        given: the user's choices, by topic.
        by: the user's choice for all others; None: the fitting one.

    Raises:
        ConfigurationError: a choice names a topic that the topology does not write.
    """
    topics = written_topics(spec)
    for topic in given:
        if topic not in topics:
            raise ConfigurationError(
                f"{topic!r} is not a topic that the topology writes and names; it writes "
                f"{', '.join(sorted(topics))}{closest(topic, topics)}"
            )
    chosen: dict[str, Comparison] = {}
    for topic in topics:
        fitting = _fitting(spec, topic)
        wanted = given.get(topic, by)
        chosen[topic] = fitting if wanted is None else Comparison(wanted, fitting.window)
    return chosen


def _fitting(spec: TopologySpec, topic: str) -> Comparison:
    ends = known_changes(spec).ends
    writers = [
        (ends[name], sink)
        for name, stream in spec.streams.items()
        for _, sink in stream.sinks
        if topic == sink.topic or topic in sink.topics
    ]
    if len(writers) != 1:  # late records, dead letters or a mixture do not replace each other
        return Comparison()
    changes, sink = writers[0]
    if changes is None:
        return Comparison()
    if changes.window is not None:
        return _of_windows(topic, changes, changes.window, sink)
    is_by_key = changes.moved is None and not changes.is_shaped
    return Comparison(CompareBy.LAST if is_by_key else CompareBy.RECORDS)


def _of_windows(topic: str, changes: Changes, window: Window, sink: SinkSpec) -> Comparison:
    is_readable = not changes.is_shaped and sink.value in (None, WINDOW.name, JSON.name)
    if is_readable:
        # After a new key, results of several keys may share one.
        is_by_key = changes.moved is None and not changes.is_final
        return Comparison(CompareBy.LAST if is_by_key else CompareBy.RECORDS, window)
    if changes.is_final:
        return Comparison()
    return Comparison(
        note=f"topic {topic} is compared record by record, with every update: its values do not "
        f"identify their window of {changes.of}. Updates come in the order of the records, "
        f"which may differ between two runs; to compare the last one of each key only: "
        f"--compare {topic}=last"
    )
