"""What happens to a record that cannot be processed: fail, skip, or dead letter."""

from __future__ import annotations

from eosframework.errors import RecordFailed
from eosframework.processing.lines import Site
from eosframework.processing.ports import Message, Output
from eosframework.topology.graph import Policy

HEADER_TOPIC = "eos.topic"
HEADER_PARTITION = "eos.partition"
HEADER_OFFSET = "eos.offset"
HEADER_ERROR = "eos.error"
HEADER_STEP = "eos.step"


class FailureHandler:
    """Applies the policy of the step that failed, and counts.

    Attributes:
        skipped: records dropped by `skip`.
        dead_letters: records written by `dead_letter`.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self.dead_letters = 0

    def __call__(self, site: Site, message: Message, error: Exception, out: list[Output]) -> None:
        """Drop the record, append its dead letter, or raise.

        Raises:
            RecordFailed: the policy is to fail; records before this one are complete.
        """
        match site.on_error.policy:
            case Policy.SKIP:
                self.skipped += 1
            case Policy.DEAD_LETTER:
                self.dead_letters += 1
                out.append(dead_letter(site, message, error))
            case Policy.FAIL:
                raise RecordFailed(
                    f"{describe(message)} failed in step {site.name!r}: {summary(error)}. "
                    f"Nothing after it was processed. Mend the function or the record, or let "
                    f"the stream go on without it: on_error: skip, or {{dead_letter: TOPIC}}",
                    offset=message.offset(),
                ) from error


def dead_letter(site: Site, message: Message, error: Exception) -> Output:
    """Return the record as it came, with headers that tell where it failed and why."""
    topic = site.on_error.topic
    assert topic is not None, "a dead_letter policy has a topic"
    headers: list[tuple[str, bytes | None]] = [
        *(message.headers() or ()),
        (HEADER_TOPIC, message.topic().encode()),
        (HEADER_PARTITION, str(message.partition()).encode()),
        (HEADER_OFFSET, str(message.offset()).encode()),
        (HEADER_ERROR, summary(error).encode()),
        (HEADER_STEP, site.name.encode()),
    ]
    timestamp = max(message.timestamp()[1], 0)
    return (topic, message.value(), message.key(), -1, None, None, timestamp, headers)


def describe(message: Message) -> str:
    """Return how a message names a record."""
    return f"record {message.topic()}[{message.partition()}]@{message.offset()}"


def summary(error: BaseException) -> str:
    """Return an error as one line of bounded length."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else text[:297] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
