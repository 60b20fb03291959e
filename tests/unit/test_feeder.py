"""The producer of the tests tells of records that it could not write."""

from __future__ import annotations

import pytest

from tests.support.applications.feeding import feeder


def test_a_record_that_was_given_up_fails_the_flush_though_nothing_is_left_to_send() -> None:
    producer = feeder("127.0.0.1:9", **{"message.timeout.ms": 50, "log_level": 0})
    producer.produce("numbers", b"1", partition=0)
    with pytest.raises(
        AssertionError, match=r"1 records were not written: \['numbers\[0\]: .*TIME"
    ):
        producer.flush(30)
