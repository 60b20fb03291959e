"""The batches that a sink accepts: the next one, and the last one once more.

::

                         last batch of the sink
    offered              none     incomplete    complete
    ───────────────────  ───────  ────────────  ──────────
    the same             -        resume        skip
    the next one         new      refuse        new
    any other            new      refuse        refuse

The same batch has the same query, number and source range. The next one has the same query, and the
number that follows. A query whose checkpoint was deleted, restored or copied offers another batch.
"""

from __future__ import annotations

from enum import StrEnum

from eosframework.errors import StartRefused
from eosframework.spark.sink_entry import BatchIdentity, SinkBatch


class Decision(StrEnum):
    """The handling of an offered batch."""

    SKIP = "skip"
    """It is complete."""

    RESUME = "resume"
    """It was accepted before; some of its shards may be complete."""

    NEW = "new"
    """No row of it was written yet."""


def decide(
    sink: str, last: SinkBatch | None, offered: BatchIdentity, shards: int, follows: str | None
) -> Decision:
    """Return the handling of an offered batch.

    Args:
        sink: its name, for messages.
        last: the last batch that the sink accepted; None: there is none.
        offered: the batch.
        shards: number of shards as configured.
        follows: the last batch, as `mark_of` has it, after which the user lets another query begin.

    Raises:
        StartRefused: the batch is neither the last one nor the next one, or the number of shards
            differs from that of an incomplete batch; names the ways on.
    """
    if last is None:
        return Decision.NEW
    if offered == last.batch:
        if last.complete:
            return Decision.SKIP
        if last.shards != shards:
            raise StartRefused(
                f"sink {sink!r}: {last.batch} is incomplete with {last.shards} shards, and now "
                f"shards={shards}: rows that are committed would be in other shards. Run with "
                f"shards={last.shards} until a batch is complete, then change the number"
            )
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
