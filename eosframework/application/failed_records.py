"""Failed records: entries of the control topic about records at which workers have stopped.

A worker whose record fails under `on_error: fail` ends, so only an entry can still report it:

    failed/TOPIC/PARTITION   {"offset": …, "error": …, "instance": …, "at": …}

An entry counts until the partition is committed beyond its offset. It is not removed then: writing
it again for each failure costs nothing, and no process has to notice that it is out of date.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from eosframework.application.control_topic import FAILED, ControlState, ControlTopic
from eosframework.errors import EosError, RecordFailed
from eosframework.records import TopicPartition

_RECORD = re.compile(r"record ([A-Za-z0-9._-]+)\[([0-9]+)\]@")
"""The beginning of the message of a `RecordFailed`."""

MESSAGE_CHARACTERS = 2000
"""Longest error that an entry holds."""


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record at which a worker has stopped.

    Args:
        error: names the record, the step, the error and the next step.
        instance: name of the worker that stopped there last.
        at: time of that, in milliseconds since the epoch.
    """

    partition: TopicPartition
    offset: int
    error: str
    instance: str
    at: int

    @property
    def record(self) -> str:
        """Place of the record: `TOPIC[PARTITION]@OFFSET`."""
        return f"{self.partition}@{self.offset}"


def record_failure(control_topic: ControlTopic, error: RecordFailed, instance: str) -> None:
    """Write the entry of a failure; a cluster that does not take it is only logged.

    Args:
        control_topic: of the application.
        error: that ends the worker.
        instance: name of the worker.
    """
    found = _RECORD.match(str(error))
    if found is None:
        return
    entry = {
        "offset": error.offset,
        "error": str(error)[:MESSAGE_CHARACTERS],
        "instance": instance,
        "at": round(time.time() * 1000),
    }
    try:
        control_topic.write({f"{FAILED}/{found[1]}/{int(found[2])}": entry})
    except EosError as failure:
        events = structlog.get_logger("eosframework.worker")
        events.warning("failure_not_recorded", reason=str(failure))


def failed_records(
    control: ControlState, committed: Mapping[TopicPartition, int | None]
) -> Iterator[FailedRecord]:
    """Yield the failed records of partitions that are not committed beyond them.

    Args:
        control: the content of the control topic.
        committed: committed offsets by partition; None: there is none. Others are left out.
    """
    for key, entry in sorted(control.entries.items()):
        kind, _, rest = key.partition("/")
        if kind != FAILED:
            continue
        topic, number = rest.split("/")
        partition = TopicPartition(topic, int(number))
        if partition in committed and (committed[partition] or 0) <= entry["offset"]:
            yield _failed(partition, entry)


def _failed(partition: TopicPartition, entry: Mapping[str, Any]) -> FailedRecord:
    return FailedRecord(partition, entry["offset"], entry["error"], entry["instance"], entry["at"])
