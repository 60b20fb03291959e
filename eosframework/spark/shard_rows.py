"""The check that the rows of a shard come together."""

from __future__ import annotations

from collections.abc import Iterable

from eosframework.errors import RunError


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
