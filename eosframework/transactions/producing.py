"""Producing of outputs (step 3), and fencing without any."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from operator import length_hint

from eosframework.transactions.ports import Output, TransactionalOutput, TransactionalOutputs

_FULL_QUEUE_SECONDS = 0.01

FENCED_AT_ONCE = 64
"""The most producers that exist only to init their ids: each has four threads."""


def fence(outputs: TransactionalOutputs, ids: Iterable[str]) -> None:
    """Init ids: their owners are fenced, and their open transactions end as aborted.

    Raises:
        TransactionError: an id could not be initialized; others may be.
    """
    waiting = sorted(set(ids))
    for first in range(0, len(waiting), FENCED_AT_ONCE):
        outputs.close(outputs.open(waiting[first : first + FENCED_AT_ONCE]))


def produce_all(
    producer: TransactionalOutput,
    outputs: Sequence[Output],
    when_full: Callable[[], None] | None = None,
) -> None:
    """Produce all outputs in order; a full queue is waited for.

    The loop runs in C unless an error occurs.

    Args:
        producer: has a transaction open.
        outputs: the outputs.
        when_full: called before the queue is waited for.

    Raises:
        TransactionError: nothing of the open transaction may be kept.
    """
    waiting = iter(outputs)
    while True:
        try:
            deque(starmap(producer.produce, waiting), maxlen=0)
            return
        except BufferError:
            if when_full is not None:
                when_full()
            _produce_late(producer, outputs[-length_hint(waiting) - 1])
        except Exception as error:
            raise producer.explain(error) from error


def _produce_late(producer: TransactionalOutput, output: Output) -> None:
    """Wait for room; a queue that does not drain ends with a transaction error."""
    while True:
        producer.poll(_FULL_QUEUE_SECONDS)
        try:
            producer.produce(*output)
            return
        except BufferError:
            continue
        except Exception as error:
            raise producer.explain(error) from error
