"""Streams: each operator returns a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from eosframework.errors import TopologyError
from eosframework.serialization.serdes import SerdeLike
from eosframework.topology.dsl.join_methods import Joinable
from eosframework.topology.dsl.keyed_streams import KeyedStream
from eosframework.topology.dsl.recorded_calls import (
    FunctionLike,
    Node,
    Recording,
    SchemaLike,
    caller,
)
from eosframework.topology.dsl.store_declarations import StoreOptions, declared_store
from eosframework.topology.spec.durations import DurationLike
from eosframework.topology.spec.topology_spec import (
    DEFAULT_BRANCH,
    DeadLetter,
    SinkSpec,
    StepSpec,
    TableMode,
    TableSpec,
    check_policy,
)

OnErrorLike = Literal["fail", "skip"] | DeadLetter


def dead_letter(
    topic: str, *, retry: Sequence[DurationLike] | DurationLike = (), replay: bool = False
) -> DeadLetter:
    """Return the policy that writes a record that cannot be processed to `topic`.

    Args:
        topic: for the record, written in the same transaction as its offset.
        retry: delays before each further attempt, for example `["10s", "1m"]`; later records do
            not wait. The record becomes a dead letter when the last attempt has failed.
        replay: create an internal topic through which dead letters are replayed; with `retry`
            there is one in any case.

    Raises:
        TopologyError: a delay is not a duration.
    """
    policy: dict[str, Any] = {"dead_letter": topic}
    if retry:
        policy["retry"] = (retry,) if isinstance(retry, str | timedelta) else tuple(retry)
    if replay:
        policy["replay"] = True
    try:
        return DeadLetter.model_validate(check_policy(policy))
    except ValueError as error:
        raise TopologyError(f"{caller()}: dead_letter: {error}") from error


class Stream(Joinable):
    """A stream of records. Each operator returns a new stream and leaves this one unchanged."""

    def __init__(self, recording: Recording, node: Node) -> None:
        self.recording = recording
        self.node = node

    def filter(self, function: FunctionLike) -> Stream:
        """Keep the records for whose value `function` returns true."""
        return self._step("filter", function)

    def map_values(self, function: FunctionLike) -> Stream:
        """Replace the value with `function(value)`."""
        return self._step("map_values", function)

    def flat_map_values(self, function: FunctionLike) -> Stream:
        """Replace the record with one record for each value of `function(value)`."""
        return self._step("flat_map_values", function)

    def peek(self, function: FunctionLike) -> Stream:
        """Call `function(value)` and pass the record on unchanged.

        Its effects outside of Kafka are repeated when the transaction is retried.
        """
        return self._step("peek", function)

    def map_batch(self, function: FunctionLike, *, schema: SchemaLike | None = None) -> Stream:
        """Replace the values of a batch of records with the columns of `function(batch)`.

        Must directly follow a source of JSON values or another batch operator. The sizes of batches
        vary: for each row, `function` must return what it would return for that row alone.

        Args:
            function: takes a pyarrow.RecordBatch and returns one with as many rows, whose columns
                are the fields of the new values. Keys, times and headers stay.
            schema: the columns to read: types by name, a pydantic model or a pyarrow.Schema;
                `_key` and `_timestamp` are those of the records. None: after a batch operator.
        """
        return self._batch("map_batch", function, schema)

    def filter_batch(self, function: FunctionLike, *, schema: SchemaLike | None = None) -> Stream:
        """Keep the records of a batch for which `function(batch)` is true.

        Args:
            function: takes a pyarrow.RecordBatch and returns an array of as many booleans; null
                counts as false.
            schema: as for `map_batch`.
        """
        return self._batch("filter_batch", function, schema)

    def select_key(self, function: FunctionLike) -> Stream:
        """Replace the key with `function(record)`."""
        return self._step("select_key", function)

    def map(self, function: FunctionLike) -> Stream:
        """Replace the record with `function(record)`: a Record or (key, value)."""
        return self._step("map", function)

    def flat_map(self, function: FunctionLike) -> Stream:
        """Replace the record with each Record or (key, value) of `function(record)`."""
        return self._step("flat_map", function)

    def process(
        self,
        function: FunctionLike,
        *,
        stores: Mapping[str, SerdeLike | StoreOptions] | None = None,
        on_timer: FunctionLike | None = None,
    ) -> Stream:
        """Call a function with the whole record and pass on the records it returns, if any.

        Args:
            function: takes the record; with stores or timers, also a `Context`.
            stores: by the name of each store, as in `context.store(name)`, the serde of its
                values, or its `StoreOptions`.
            on_timer: takes key, time in milliseconds and context when a timer is due that was set
                with `context.set_timer`; returns records like the function.
        """
        if stores is None and on_timer is None:
            return self._step("process", function)
        reference = self.recording.reference
        declared = {
            "call": reference("process", function),
            "stores": {n: declared_store(self.recording, s) for n, s in (stores or {}).items()},
            "on_timer": None if on_timer is None else reference("on_timer", on_timer),
        }
        return self.declared("process", declared)

    def group_by(
        self,
        function: FunctionLike,
        *,
        key: SerdeLike | None = None,
        value: SerdeLike | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> KeyedStream:
        """Replace the key with `function(record)` and bring the records of each key together.

        They pass through a repartition topic, partitioned by the new key.

        Args:
            function: takes the whole record and returns the new key.
            key: serde of the new key. None: the serde of the previous key.
            value: serde of the value in the repartition topic. None: the serde of the source; json
                if a step produced the value.
            partitions: of the repartition topic. None: as many as the source has.
            name: that the repartition topic is derived from. None: the stream's name.
        """
        group = {
            "by": self.recording.reference("group_by", function),
            "key": None if key is None else self.recording.serde(key),
            "value": None if value is None else self.recording.serde(value),
            "partitions": partitions,
            "name": name,
        }
        return KeyedStream(self.declared("group_by", group))

    def group_by_key(self) -> KeyedStream:
        """Bring the records of each key together, through a repartition topic if the key is new."""
        return KeyedStream(self)

    def merge(self, *others: Stream) -> Stream:
        """Merge this stream and `others` into one; each keeps its own order."""
        for other in others:
            if other.recording is not self.recording:
                raise TopologyError(
                    f"{caller()}: merge was given a stream of another topology, "
                    f"{other.recording.application!r}; declare both with the same Topology"
                )
        parents = (self.node, *(other.node for other in others))
        return self._next(Node(caller(), parents))

    def named(self, name: str) -> Stream:
        """Name the stream that ends here, for messages and transactional ids."""
        self._refuse_afterthought("named")
        return self._next(Node(caller(), (self.node,), name=name))

    def on_error(self, policy: OnErrorLike) -> Stream:
        """Set the policy for records for which a step or a sink of this stream fails.

        It applies to the whole stream, from its source or branch; streams derived from it inherit
        it unless they state their own.

        Args:
            policy: `"fail"` (the default), `"skip"` or `dead_letter(topic)`.
        """
        self._refuse_afterthought("on_error")
        return self._next(Node(caller(), (self.node,), policy=policy_of(policy)))

    def branch(
        self,
        branches: Mapping[str, FunctionLike] | None = None,
        *,
        default: str | None = None,
        **more: FunctionLike,
    ) -> dict[str, Stream]:
        """Send each record to one named stream: the first whose predicate is true.

        Args:
            branches: predicate on the value by the name of its stream; also as keywords.
            default: name of the stream for the remaining records. None: drop them.
            more: as `branches`.

        Returns:
            The streams by name.
        """
        self._refuse_second_branch()
        wanted = {**(branches or {}), **more}
        streams = {name: self._branch(f, name) for name, f in wanted.items()}
        if default is not None:
            streams[default] = self._branch(None, default)
        return streams

    def split(self, *predicates: FunctionLike) -> tuple[Stream, ...]:
        """Send each record to the first stream whose predicate is true.

        Returns:
            One stream for each predicate on the value, then the stream of the remaining records.
        """
        self._refuse_second_branch()
        return tuple(self._branch(predicate, None) for predicate in (*predicates, None))

    def to(
        self,
        *targets: str | Callable[..., str],
        topics: tuple[str, ...] | list[str] = (),
        key: SerdeLike | None = None,
        value: SerdeLike | None = None,
        name: str | None = None,
    ) -> None:
        """Write the stream to topics.

        Args:
            targets: each a topic, or a function that takes the whole record and returns one.
            topics: that such a function may return; if given, any other topic is an error.
            key: serde of the key. None: the serde of the source.
            value: serde of the value. None: the serde of the source.
            name: of the sink in messages.
        """
        place = caller()
        if not targets:
            raise TopologyError(f"{place}: to() was given no topic; name at least one")
        for target in targets:
            chosen = None if isinstance(target, str) else self.recording.reference("to", target)
            sink = SinkSpec(
                topic=target if isinstance(target, str) else None,
                topic_from=chosen,
                topics=tuple(topics) if chosen else (),
                key=None if key is None else self.recording.serde(key),
                value=None if value is None else self.recording.serde(value),
                name=name,
            )
            self.node.sinks.append((sink, place))

    def to_table(
        self,
        table: str,
        *,
        mode: TableMode = "append",
        keys: str | tuple[str, ...] | list[str] = (),
        row: FunctionLike | None = None,
        model: type[BaseModel] | str | None = None,
        key: SerdeLike | None = None,
        value: SerdeLike | None = None,
        on_error: Literal["fail", "skip", "dead_letter"] | None = None,
    ) -> None:
        """Write the stream to a table of the database, each record once.

        Several tables of one stream are written in one database transaction per record.

        Args:
            table: its name, with its schema before a dot if it has one.
            mode: `"append"`, `"upsert"`, or `"upsert_delete"`: a null value deletes its row.
            keys: columns that identify a row, for both kinds of upsert.
            row: takes the whole record and returns its row, a list of rows or None; a row is a
                dict or a model. None: the record's value is the row.
            model: pydantic model with the columns, from which `apply` creates the table.
            key: serde of the key in the topic that the table writer reads. None: the source's.
            value: serde of the value in that topic. None: the model's, or the source's.
            on_error: for a row that the database refuses. None: as the stream.
        """
        place = caller()
        try:
            declared = TableSpec(
                table=table,
                mode=mode,
                keys=(keys,) if isinstance(keys, str) else tuple(keys),
                row=None if row is None else self.recording.reference("row", row),
                model=None if model is None else self.recording.model(model),
                key=None if key is None else self.recording.serde(key),
                value=None if value is None else self.recording.serde(value),
                on_error=on_error,
            )
        except ValidationError as error:
            detail = error.errors()[0]
            raise TopologyError(f"{place}: to_table({table!r}): {detail['msg']}") from error
        self.node.sinks.append((declared, place))

    def _batch(self, operator: str, function: FunctionLike, schema: SchemaLike | None) -> Stream:
        reference = self.recording.reference(operator, function)
        columns = None if schema is None else self.recording.schema(operator, schema)
        return self.declared(operator, {"call": reference, "schema": columns})

    def _step(self, operator: str, function: FunctionLike) -> Stream:
        return self.declared(operator, self.recording.reference(operator, function))

    def declared(self, operator: str, declared: Any, joined: Node | None = None) -> Stream:
        """Add a step, given as in a topology file."""
        try:
            step = StepSpec.model_validate({operator: declared})
        except ValidationError as error:
            detail = error.errors()[0]
            where = ".".join(str(part) for part in detail["loc"])
            raise TopologyError(
                f"{caller()}: {where}={detail['input']!r}: {detail['msg']}"
            ) from error
        return self._next(Node(caller(), (self.node,), step=step, joined=joined))

    def _next(self, node: Node) -> Stream:
        return Stream(self.recording, self.recording.add(node))

    def _branch(self, predicate: FunctionLike | None, name: str | None) -> Stream:
        if name == DEFAULT_BRANCH:
            raise TopologyError(
                f"{caller()}: a branch cannot be named {DEFAULT_BRANCH!r}; choose another name"
            )
        reference = None if predicate is None else self.recording.reference("branch", predicate)
        node = self.recording.add(Node(caller(), name=name, is_branch=True))
        self.node.branches.append((reference, node))
        return Stream(self.recording, node)

    def _refuse_afterthought(self, call: str) -> None:
        if self.node.children or self.node.sinks or self.node.branches:
            raise TopologyError(
                f"{caller()}: {call}() comes after the stream was used; call it before to(), "
                f"branch() and further steps, and continue with its result"
            )

    def _refuse_second_branch(self) -> None:
        if self.node.branches:
            raise TopologyError(
                f"{caller()}: this stream branches twice; put all predicates into one branch()"
            )


def policy_of(policy: Any) -> OnErrorLike | None:
    """Return a policy in the form of the spec.

    Raises:
        TopologyError: it is not a policy.
    """
    if policy is None or isinstance(policy, DeadLetter) or policy in ("fail", "skip"):
        return policy
    raise TopologyError(
        f"{caller()}: on_error was given {policy!r}; expected 'fail', 'skip' or dead_letter(topic)"
    )
