"""The join methods of streams and tables."""

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
    """A topic that every process keeps in memory; see `Topology.global_table`."""

    def __init__(self, recording: Recording, node: Node) -> None:
        self.recording = recording
        self.node = node


class Joinable:
    """The join methods of `Stream` and `KeyedStream`."""

    recording: Recording
    node: Node

    @abstractmethod
    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step, given as in a topology file."""

    def join(
        self,
        other: Stream | GlobalTable,
        by: FunctionLike,
        *,
        how: How = "inner",
        key: FunctionLike | None = None,
    ) -> Stream:
        """Join each record with the row of a table; two tables are joined row by row.

        Args:
            other: a table: `Topology.table`, an aggregate, a join of tables, or one of these
                followed by `filter` and `map_values`; or a global table.
            by: takes the value and the row; the row is None if there is none.
            how: `"inner"`: only records with a row. `"left"`: all records of this side.
                `"outer"`, for two tables: all rows of both.
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
        """Join each record with another stream's records of the same key that are close in time.

        Args:
            other: the stream.
            by: takes this side's value and the other's; one is None for a record without a match.
            within: greatest distance between the event times of two records that match.
            before: how much earlier the other record may be. None: `within`.
            after: how much later the other record may be. None: `within`.
            grace: how long after the end of an interval late records are accepted, in stream time.
            how: `"inner"`, `"left"` or `"outer"`: the sides whose records have a result even
                without a match, once none is possible any more.
            late: topic for records that arrive after their interval and its grace are over. None:
                they are only counted.
            value: serde of this side's values in the store. None: the serde of the source; json if
                a step produced the value.
            with_value: serde of the other side's values.
            store: name of the store that buffers records. None: the stream's name with `.join`.

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
        # `flatten` sets the name of the other side, once all streams have names.
        return self.declared("join", {"with": "", **declared}, other.node)
