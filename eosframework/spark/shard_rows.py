"""The check that a Spark partition has the rows of one shard."""

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
        raise RunError(
            f"rows of the shards {sorted(shards)} came to one task: Spark merged the partitions of "
            f"a shuffle. Set spark.sql.adaptive.enabled=false in the session, and start the query "
            f"again: it resumes"
        )
    return shards.pop()
