"""Hands outputs to a producer (step 3)."""

from __future__ import annotations

from collections.abc import Iterable

from eosframework.processing.ports import Output, TransactionalOutput

_FULL_QUEUE_SECONDS = 0.01


def produce_all(producer: TransactionalOutput, outputs: Iterable[Output]) -> None:
    """Produce all of them, in their order; a full queue is waited for.

    Raises:
        TransactionError: nothing of the open transaction may be kept.
    """
    produce = producer.produce
    remaining = iter(outputs)
    output: Output | None = None
    while True:
        try:
            if output is not None:
                produce(*output)
            for output in remaining:
                produce(*output)
            return
        except BufferError:
            producer.poll(_FULL_QUEUE_SECONDS)
        except Exception as error:
            raise producer.explain(error) from error
