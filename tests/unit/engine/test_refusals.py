"""Outputs that a topic is known to refuse fail their record before anything is produced."""

from __future__ import annotations

import time
from typing import Any

import pytest

from eosframework.engine.codegen.compile_context import CompileContext
from eosframework.engine.codegen.compiler import compile_source
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.engine.failures.refused_outputs import CLOCKS_MS, OutputLimits
from eosframework.errors import DataRejected
from tests.unit.engine.messages import DEAD, SKIP, Sent, sink, source

HOUR_MS = 3_600_000


def ran(message: Sent, limits: OutputLimits | None, **options: Any) -> list[Any]:
    """Return what a copied record gives, with `skip` at the sink: it is the source's to decide."""
    given = {} if limits is None else {"out": limits}
    target = compile_source(
        source(sink(value=bytes, on_error=SKIP), value=bytes, on_error=DEAD),
        CompileContext(limits=given),
    )
    out: list[Any] = []
    target.run([message], out, 0, FailureHandler())
    return out


@pytest.mark.parametrize(
    ("value", "limits", "refused"),
    [
        (b"x" * 10, OutputLimits(value_bytes=10), False),
        (b"x" * 11, OutputLimits(value_bytes=10), True),
        (b"x" * 11, OutputLimits(), False),
        (b"x" * 11, None, False),
        (None, OutputLimits(value_bytes=10), False),
    ],
)
def test_a_value_above_the_limit_of_its_topic_is_the_records_error(
    value: bytes | None, limits: OutputLimits | None, refused: bool
) -> None:
    [output] = ran(Sent(value), limits)
    assert output[0] == ("dead" if refused else "out")
    if refused:
        headers = dict(output[7])
        assert headers["__eos.errors.step"] == b"output", "as where brokers refuse: audits go by it"
        assert (
            b"DataRejected: topic out refuses a value of 11 bytes"
            in headers["__streams.errors.exception"]
        )


@pytest.mark.parametrize(
    ("from_now_ms", "limits", "refused"),
    [
        (0, OutputLimits(None, HOUR_MS, HOUR_MS), False),
        (HOUR_MS + CLOCKS_MS // 2, OutputLimits(None, None, HOUR_MS), False),
        (HOUR_MS + 2 * CLOCKS_MS, OutputLimits(None, None, HOUR_MS), True),
        (-HOUR_MS - CLOCKS_MS // 2, OutputLimits(None, HOUR_MS, None), False),
        (-HOUR_MS - 2 * CLOCKS_MS, OutputLimits(None, HOUR_MS, None), True),
        (-1000, OutputLimits(None, 1, None), True),
        (1000, OutputLimits(None, None, 1), True),
        (0, OutputLimits(None, 60_000, 1), False),
        (-500_000 * HOUR_MS, OutputLimits(None, HOUR_MS, HOUR_MS), True),  # written at 1 ms
    ],
)
def test_a_timestamp_outside_the_limits_of_its_topic_is_the_records_error(
    from_now_ms: int, limits: OutputLimits, refused: bool
) -> None:
    now_ms = round(time.time() * 1000)
    [output] = ran(Sent(b"x", time=now_ms + from_now_ms), limits)
    assert output[0] == ("dead" if refused else "out")


def test_what_is_refused_is_no_failure_of_the_framework_and_is_not_tried_again() -> None:
    assert issubclass(DataRejected, Exception)
    [output] = ran(Sent(b"xx"), OutputLimits(value_bytes=1))
    assert "__eos.errors.attempts" not in dict(output[7])
