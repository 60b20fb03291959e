"""What the driver says of a failure that Spark reports."""

from __future__ import annotations

import pytest

from eosframework.backfill.spark.executor_failures import reason_of


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred while calling o232.collectToPython.\n: org.apache.spark."
            "SparkException: Job aborted due to stage failure.\n\tat org.apache",
            "org.apache.spark.SparkException: Job aborted due to stage failure",
        ),
        (
            "An error occurred while calling o144.getResult.\n: org.apache.spark.SparkException: "
            "Exception thrown in awaitResult: \n\tat org.apache\nCaused by: org.apache.spark."
            "SparkException: Job aborted due to stage failure: too large\n\tat org.apache",
            "org.apache.spark.SparkException: Job aborted due to stage failure: too large",
        ),
        ("\n\nno such table.\nmore", "no such table"),
        ("An error occurred while calling o1.collect", "RuntimeError"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_the_first_line_that_says_more_than_the_call(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason
