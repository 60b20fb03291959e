"""The entries of a sink in the control topic: its last batch, and the progress of each shard.

sink/SINK              the last batch: accepted, or complete
sink/SINK/shard/NUMBER a shard's progress, written in its transactions

SINK is the sink's name, or NAME.JOB for a batch DataFrame. The driver writes its entry under the
sink's own transactional id, so a driver that was replaced can write none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from eosframework.backfill.job.job_entry import ControlEntry
from eosframework.records import whole_number

_OTHER = re.compile(r"[^a-z0-9_]")


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

    complete: bool = False
    """All shards have committed all rows."""

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
