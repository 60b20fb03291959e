"""Headers whose names are no UTF-8: confluent_kafka cannot read them, and ends at the second try.

`Message.headers()` raises a SystemError for such a record, and keeps a half-made list; the next
call reads that and ends the process by SIGSEGV (2.16). So the headers of every record are read here
first, once for a batch. The record goes on without its headers: their names cannot be had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import length_hint

from confluent_kafka import Message

HEADER_UNREADABLE = "__eos.unreadable_headers"
"""The only header of a record whose own could not be read."""


def make_readable(messages: Sequence[Message]) -> None:
    """Read the headers of messages, and replace those that cannot be read."""
    waiting = iter(messages)
    while True:
        try:
            deque(map(Message.headers, waiting), maxlen=0)
            return
        except SystemError:
            messages[-length_hint(waiting) - 1].set_headers([(HEADER_UNREADABLE, b"")])
