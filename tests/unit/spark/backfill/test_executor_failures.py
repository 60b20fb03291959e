"""What the driver says of a failure that Spark reports."""

from __future__ import annotations

import pytest

from eosframework.spark.session.executors import reason_of


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
        (
            "An exception was thrown from the Python worker. Please see the stack trace below.\n"
            'Traceback (most recent call last):\n  File "job.py", line 2, in read\n    '
            "bad()\n    ^^^^^\nKeyError: 'k'\n\nDuring handling of the above exception, another "
            'exception occurred:\n\nTraceback (most recent call last):\n  File "job.py", '
            "line 7, in bad\n    raise ValueError(\n    ~~^^\nValueError: no such\nthing: 0.\n",
            "ValueError: no such thing: 0 (at job.py:7 in bad)",
        ),
        (
            "An error occurred while calling o9.parquet.\n: org.apache.spark.SparkException: Job "
            "aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: org.apache.spark."
            'api.python.PythonException: Traceback (most recent call last):\n  File "job.py", '
            "line 2, in read\nOverflowError: date value out of range\n\n\tat org.apache.spark",
            "OverflowError: date value out of range (at job.py:2 in read)",
        ),
        ("\n\nno such table.\nmore", "no such table"),
        ("An error occurred while calling o1.collect", "RuntimeError"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_the_error_itself_and_not_the_call_that_failed(
    text: str, reason: str
) -> None:
    assert reason_of(RuntimeError(text)) == reason
