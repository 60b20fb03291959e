"""Joins of streams and tables in Python."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.recorded_calls import FunctionLike, Node, Recording, caller
from eosframework.topology.spec.durations import DurationLike
from eosframework.topology.spec.join_spec import How

if TYPE_CHECKING:
    from eosframework.topology.dsl.streams import Stream


class GlobalTable:
    """A topic that every process has whole; see `Topology.global_table`."""

    def __init__(self, recording: Recording, node: Node) -> None:
        self.recording = recording
        self.node = node


class Joinable:
    """What `Stream` has of joins."""

    recording: Recording
    node: Node

    @abstractmethod
    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step from what a topology file would say of it."""

    def join(
        self,
        other: Stream | GlobalTable,
        by: FunctionLike,
        *,
        how: How = "inner",
        key: FunctionLike | None = None,
    ) -> Stream:
        """Put each record together with the row of a table; tables are joined row by row.

        Args:
            other: a table: `Topology.table`, an aggregate, a join of tables, or one of these behind
                `filter` and `map_values`; or a global table.
            by: takes the value and the row, which is None where there is none.
            how: `"inner"`: only records with a row. `"left"`: all of this side. `"outer"`, of two
                tables: all of both.
            key: with a global table: takes the whole record and returns the row's key. None: the
                record's key.

        Raises:
            TopologyError: the table is of another topology.
        """
        declared: dict[str, Any] = {"by": self.recording.reference("join", by), "kind": how}
        if key is not None:
            declared["key"] = self.recording.reference("join", key)
        return self._joined("join", other, declared)

    def join_within(
        self,
        other: Stream,
        by: FunctionLike,
        within: DurationLike | None = None,
        *,
        before: DurationLike | None = None,
        after: DurationLike | None = None,
        grace: DurationLike = "0s",
        how: How = "inner",
        late: str | None = None,
        value: SerdeLike | None = None,
        with_value: SerdeLike | None = None,
        store: str | None = None,
    ) -> Stream:
        """Put each record together with those of another stream at about its time, key by key.

        Args:
            other: the stream.
            by: takes this side's value and the other's; one is None where a record met nothing.
            within: how far apart the times of two records may be that meet.
            before: how much earlier the other record may be. None: `within`.
            after: how much later it may be. None: `within`.
            grace: how long, in the time of the records, those that come late are waited for.
            how: `"inner"`, `"left"` or `"outer"`: what goes on alone when it can meet nothing more.
            late: topic that takes records that come when their interval is over. None: they are
                counted only.
            value: serde of this side's values while they wait. None: that of the source; json
                where a step made the value.
            with_value: serde of the other side's.
            store: name of the store where records wait. None: that of the stream with `.join`.

        Raises:
            TopologyError: the stream is of another topology, or no time is given.
        """
        if within is None and before is None and after is None:
            raise TopologyError(
                f"{caller()}: join_within was given no time; say how far apart records may be, "
                f"as in within='10m'"
            )
        times = {"within": within, "before": before, "after": after, "grace": grace}
        serdes = {"value": value, "with_value": with_value}
        recording = self.recording
        declared: dict[str, Any] = {
            "by": recording.reference("join_within", by),
            "kind": how,
            **{name: time for name, time in times.items() if time is not None},
            **{name: recording.serde(serde) for name, serde in serdes.items() if serde is not None},
        }
        names = {"store": store, "late": late}
        declared.update({name: value for name, value in names.items() if value is not None})
        return self._joined("join_within", other, declared)

    def _joined(self, call: str, other: Stream | GlobalTable, declared: dict[str, Any]) -> Stream:
        if other.recording is not self.recording:
            raise TopologyError(
                f"{caller()}: {call} was given a stream of another topology, "
                f"{other.recording.application!r}; declare both with the same Topology"
            )
        # Its name is known when all streams are.
        return self.declared("join", {"with": "", **declared}, other.node)
