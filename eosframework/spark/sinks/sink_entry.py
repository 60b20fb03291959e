"""The entries of a sink in the control topic: its last batch, and the progress of each shard.

sink/SINK              the last batch: accepted, or complete
sink/SINK/shard/NUMBER a shard's progress, written in its transactions

SINK is the sink's name, or NAME.JOB for a batch DataFrame. The driver writes its entry under the
sink's own transactional id, so a driver that was replaced can write none.

The batches that a sink accepts::

                         last batch of the sink
    offered              none     incomplete    complete
    ───────────────────  ───────  ────────────  ──────────
    the same             -        resume, new   skip
    the next one         new      refuse        new
    any other            new      refuse        refuse

An incomplete batch of which nothing is committed is a new one: its stage is dropped, and the query,
which may have a filter now, computes it again.

The same batch has the same query, number and source range. The next one has the same query, and the
number that follows. A query whose checkpoint was deleted, restored or copied offers another batch.

A small batch, which one transaction can hold, needs no stage: either all of its rows are committed,
with the record that it is complete, or none, and then it may be computed again with another result.
Its rows are computed by one Spark job and collected in the driver, and no second one writes them.
The size of a batch is not known before it is computed. It is expected to be small if the last one
was. A batch that turns out larger is computed again, for its stage; nothing of it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from eosframework.errors import ConfigurationError, RunError, StartRefused
from eosframework.records import whole_number
from eosframework.spark.job.job_entry import ControlEntry
from eosframework.spark.session.executors import Table, reason_of
from eosframework.topology.graph.graph import OnError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REFUSED_LATE = (
    "The rows of the shard before it are committed. If that is none, and no other shard has "
    "committed rows, a restarted query computes the batch again, with a filter if it has one now; "
    "else it resumes from the stage at this row, and a filter begins with the next batch"
)
"""In messages about a row that only the server refuses, and the way on."""

_OTHER = re.compile(r"[^a-z0-9_]")

_NAME = re.compile(r"[a-z0-9_-]{1,60}")


class BatchIdentity(ControlEntry):
    """A batch as Spark names it.

    Equal ids of different queries or ranges are different batches.
    """

    query: str
    """Id of the streaming query, which its checkpoint keeps; or `job JOB`."""

    number: int
    """Of the batch within the query."""

    range: str
    """Digest of the source offsets of the batch, as the checkpoint has them."""

    def __str__(self) -> str:
        return f"batch {self.number} of query {self.query}"


class SinkBatch(ControlEntry):
    """The last batch of a sink."""

    sequence: int
    """Counts the batches of the sink, whatever their queries; progress refers to it."""

    batch: BatchIdentity

    shards: int

    stage: str | None
    """Directory of the batch's rows; None: the plan is repeatable, as its user said."""

    on_error: str = "fail"
    """Policy for rows that cannot be written; the stage has what it decided."""

    complete: bool = False
    """All shards have committed all rows."""

    given_up: bool = False
    """No attempt may commit a row of it any more; see `give_up` of a Kafka sink."""

    rows: int = 0
    """Number of rows, once it is complete."""

    positions: tuple[int, ...] = ()
    """For each shard, the rows of all batches before this one; once it is complete, with its own.

    Shards after the last number have none. Sinks in Kafka count them, for receipts."""

    receipts_since: tuple[int, ...] | None = None
    """For each shard, the position at which its receipts begin; None: rows get no receipts."""

    topics: tuple[str, ...] = ()
    """The topics with receipts of the sink, as far as they are known."""

    ended: bool = False
    """Always False: a driver that ends announces nothing."""

    attempt: str
    """Name of the driver that wrote this."""

    written_at: int
    """In milliseconds since the epoch."""


class ShardProgress(ControlEntry):
    """Progress of one shard, as of its last committed transaction."""

    sequence: int
    """Of the batch; see `SinkBatch`."""

    batch: BatchIdentity

    rows: int = 0
    """Number of the batch's rows that are committed, in the order of the shard."""

    digest: int = 0
    """Sum of the hashes of these rows, modulo 2**64."""

    complete: bool = False
    """All rows of the batch are committed."""

    ended: bool = False
    """The attempt that wrote this has ended, so its successor need not wait for it."""

    attempt: str
    """Name of the attempt that wrote this."""

    written_at: int
    """In milliseconds since the epoch."""


def position(positions: Sequence[int], shard: int) -> int:
    """Return the position of a shard; 0 for a shard without one."""
    return positions[shard] if shard < len(positions) else 0


def batch_key(sink: str) -> str:
    """Return the key of a sink's last batch."""
    return f"sink/{sink}"


def shards_prefix(sink: str) -> str:
    """Return the prefix of the keys of a sink's shards."""
    return f"sink/{sink}/shard/"


def is_batch_key(key: str) -> bool:
    """Return whether a key is that of a sink's last batch."""
    return key.startswith(batch_key("")) and "/" not in key.removeprefix(batch_key(""))


def is_of_sink(sink: str, key: str) -> bool:
    """Return whether a key is that of a sink's last batch, or of one of its shards."""
    return key == batch_key(sink) or key.startswith(shards_prefix(sink))


def shard_of(sink: str, key: str) -> int | None:
    """Return the shard of a progress key; None: the key belongs to no shard of this sink."""
    prefix = shards_prefix(sink)
    return whole_number(key.removeprefix(prefix)) if key.startswith(prefix) else None


def shard_key(sink: str, shard: int) -> str:
    """Return the key of a shard's progress."""
    return f"{shards_prefix(sink)}{shard}"


def name_of(target: str) -> str:
    """Return the default name of a sink from its topic or table."""
    return _OTHER.sub("_", target.lower())


def check_sink_name(name: str, kind: str) -> str:
    """Return a valid name of a sink, or of its job.

    Args:
        name: the name.
        kind: of its bearer, for the message.

    Raises:
        ConfigurationError: the name is invalid in a transactional id.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{kind} {name!r} has a name that cannot be part of a transactional id; expected up to "
            f"60 lower-case letters a-z, digits, '_' and '-', for example: delays-2013"
        )
    return name


class Decision(StrEnum):
    """The handling of an offered batch."""

    SKIP = "skip"
    """It is complete."""

    RESUME = "resume"
    """It was accepted before; some of its rows may be committed. If none is, it is new."""

    NEW = "new"
    """No row of it was written yet."""


def decide(
    sink: str, last: SinkBatch | None, offered: BatchIdentity, follows: str | None
) -> Decision:
    """Return the handling of an offered batch.

    Args:
        sink: its name, for messages.
        last: the last batch that the sink accepted; None: there is none.
        offered: the batch.
        follows: the last batch, as `mark_of` has it, after which the user lets another query begin.

    Raises:
        StartRefused: the batch is neither the last one nor the next one; names the ways on.
    """
    if last is None:
        return Decision.NEW
    if offered == last.batch:
        if last.complete:
            return Decision.SKIP
        return Decision.RESUME
    if follows == mark_of(last):
        return Decision.NEW
    if not last.complete:
        raise _refused(
            sink,
            last,
            offered,
            "some rows of the incomplete batch may be committed, and the rest would be lost",
        )
    if offered.query != last.batch.query:
        raise _refused(
            sink,
            last,
            offered,
            "the checkpoint was deleted or exchanged, or two queries use the sink (then give one "
            "of them another name=)",
        )
    if offered.number != last.batch.number + 1:
        raise _refused(
            sink,
            last,
            offered,
            f"expected batch {last.batch.number} or {last.batch.number + 1}: the checkpoint was "
            f"restored from a copy, or another sink was used meanwhile",
        )
    return Decision.NEW


def refuse_other_options(sink: str, last: SinkBatch, shards: int, on_error: str) -> None:
    """Raise if a batch that continues from its stage was opened with other options.

    Args:
        sink: its name, for messages.
        last: the batch, of which some rows are committed.
        shards: number of shards as configured.
        on_error: policy as configured.

    Raises:
        StartRefused: names the option.
    """
    opened = {"shards": last.shards, "on_error": last.on_error}
    for option, now in (("shards", shards), ("on_error", on_error)):
        if opened[option] != now:
            raise StartRefused(
                f"sink {sink!r}: {last.batch} is incomplete with {option}={opened[option]}, some "
                f"of its rows are committed, and now {option}={now}: the rest could go elsewhere. "
                f"Run with {option}={opened[option]} until a batch is complete, then change it"
            )


def policy_text(on_error: OnError) -> str:
    """Return the policy of a sink as its entry has it."""
    return on_error.policy.value if on_error.topic is None else f"dead_letter({on_error.topic!r})"


def mark_of(last: SinkBatch) -> str:
    """Return the name of a sink's last batch for `follows`."""
    return f"{last.batch.query}@{last.batch.number}"


def _refused(sink: str, last: SinkBatch, offered: BatchIdentity, reason: str) -> StartRefused:
    state = "complete" if last.complete else "incomplete"
    same = " with another source range" if offered.number == last.batch.number else ""
    return StartRefused(
        f"sink {sink!r} has {last.batch} as its last one, which is {state}, and gets {offered}"
        f"{same}: {reason}. Nothing was written. Use the checkpoint of the last batch; or, if the "
        f"rows of this query are new ones, begin it with follows={mark_of(last)!r}; or use another "
        f"sink name"
    )


FEW_ROWS = 10_000
"""Most rows of a small batch. One process writes them in less time than a second Spark job needs to
start."""

FEW_BYTES = 32 * 2**20
"""Largest small batch in memory."""

FEW_PARTITIONS = 8
"""Most Spark partitions of which each may send as many rows as a small batch has. More are merged
before: forty of them came to 705 MB."""

_ROW_OF_PARTITION = "(monotonically_increasing_id() & 8589934591L)"
"""The number of a row in its Spark partition: the lower 33 bits."""

_TOO_LARGE = "spark.driver.maxResultSize"
"""Named by Spark when a driver refuses results."""


def sink_rows(frame: DataFrame, column: Column) -> DataFrame:
    """Return what a sink writes of each row, in columns.

    Args:
        frame: the user's rows.
        column: what the sink writes of each row, as a struct.
    """
    return frame.select(column.alias("row")).select("row.*")


def are_few_expected(last: SinkBatch | None) -> bool:
    """Return whether the batch after a sink's last one is expected to be small."""
    return last is not None and last.complete and last.rows <= FEW_ROWS


def few_rows(frame: DataFrame, column: Column) -> Table | None:
    """Return the rows of a sink as a table of Arrow, in any order; None: they are too many.

    All rows are computed, so that a stateful plan keeps its state. A Spark partition with too many
    sends as many as it takes to notice that; many partitions are one before they send any.

    Args:
        frame: the user's rows.
        column: what the sink writes of each row, as a struct.
    """
    arrow: Any = import_module("pyarrow")
    rows = frame.select(column.alias("row"))
    if not 0 < _partitions_of(frame) <= FEW_PARTITIONS:
        rows = rows.repartition(1)
    bounded = rows.filter(f"{_ROW_OF_PARTITION} <= {FEW_ROWS}")
    try:
        few: Table = cast(Any, bounded).toArrow().column("row")
    except Exception as error:
        if _TOO_LARGE in reason_of(error):
            return None
        raise
    if len(few) > FEW_ROWS or few.nbytes > FEW_BYTES:
        return None
    return arrow.Table.from_struct_array(few)


def _partitions_of(frame: DataFrame) -> int:
    """Return the number of Spark partitions of rows; 0: it is not known before they are computed.

    Args:
        frame: the rows; they are planned, not computed.
    """
    plan: Any = cast(Any, frame)._jdf.queryExecution().executedPlan()  # noqa: SLF001
    return int(plan.outputPartitioning().numPartitions())


def the_shard(found: Iterable[int], expected: int | None) -> int:
    """Return the shard of a batch of Arrow.

    Args:
        found: the shard of each row, at least one.
        expected: of the batches before; None: there was none.

    Raises:
        RunError: rows of several shards came to one task.
    """
    shards = {*found, *(() if expected is None else (expected,))}
    if len(shards) > 1:
        raise RunError(came_apart(*sorted(shards)))
    return shards.pop()


def came_apart(*shards: int) -> str:
    """Return the message for shards whose rows Spark has mixed.

    Args:
        shards: their numbers.
    """
    return (
        f"the rows of shards {', '.join(map(str, shards))} came mixed to one task: Spark merged "
        f"the partitions of a shuffle. Set spark.sql.adaptive.enabled=false in the session, and "
        f"start the query again: it resumes"
    )
