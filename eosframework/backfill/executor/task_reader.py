"""The log reader of a task, for stages whose records Spark need not sort.

Ends are fixed and `read_committed`, so every attempt finds the same records from a position on.
Several partitions are merged in the order of a live task with all its input available: no partition
is idle before its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

from eosframework.backfill.executor.attempt_context import AttemptContext
from eosframework.backfill.executor.chunk import Run
from eosframework.kafka.consumer.range_reader import read_ranges
from eosframework.processing.input_queues import Pending, TimeOf, TimestampQueue
from eosframework.processing.session.session_policy import PATIENCE_SECONDS
from eosframework.records import TopicPartition

Rows = Callable[[Mapping[TopicPartition, int]], Iterator[Run]]
"""Returns a task's rows in order, from its positions on or earlier."""

TAKEN_RECORDS = 2000
"""Largest number of consecutive records of one partition in a merge."""


@contextmanager
def reading(context: AttemptContext) -> Generator[Rows]:
    """Yield a reader of the task's ranges; its connections are closed after the block.

    Its rows raise PositionLost where retention deleted records to read, and ClusterUnreachable
    while brokers stay unavailable.
    """
    with ExitStack() as opened:

        def read(positions: Mapping[TopicPartition, int]) -> Iterator[Run]:
            readers: dict[TopicPartition, Iterator[Run]] = {}
            for partition in context.compiled.in_turn(context.ends):
                range_ = positions[partition], context.ends[partition]
                readers[partition] = opened.enter_context(
                    closing(
                        read_ranges(
                            context.settings.kafka,
                            {partition: range_},
                            patience_seconds=PATIENCE_SECONDS,
                        )
                    )
                )
            if len(readers) == 1:
                return next(iter(readers.values()))
            sources = context.compiled.sources
            return merged(readers, {p: sources[p.topic].time_of for p in readers})

        yield read


def merged(
    readers: Mapping[TopicPartition, Iterator[Run]], time_of: Mapping[TopicPartition, TimeOf]
) -> Iterator[Run]:
    """Yield the records of several partitions in the order of a live task.

    Args:
        readers: the records of each partition, in offset order.
        time_of: by partition; among records of the same time, earlier partitions come first.
    """
    queue = TimestampQueue(time_of, 0.0, lambda: 0.0)
    left, waiting, read_to = dict(readers), dict.fromkeys(readers, 0), dict.fromkeys(readers, 0)
    while left or queue.is_ready():
        for partition in [p for p in left if not waiting[p]]:
            if (run := next(left[partition], None)) is None:
                del left[partition]
                queue.reached_end(partition, read_to[partition])
            else:
                queue.add(Pending(*run, None))
                waiting[partition] = len(run[1])
                read_to[partition] = run[1][-1].offset() + 1
        while queue.is_ready():
            taken = queue.take(TAKEN_RECORDS)
            waiting[taken.partition] -= len(taken.messages)
            yield taken.partition, taken.messages
