"""Validation of control topic entries: by kind, with their offset in errors.

Any client with Write on the topic can put bytes there. An unreadable entry under an unknown key is
skipped with a warning. An unreadable value under a known key has replaced application state, so the
start is refused with the record's place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
import structlog

from eosframework.errors import ControlTopicDamaged, TopologyError
from eosframework.postgres.outbox.relay_position import SUB_TOPOLOGY, VERSION, RelayPosition
from eosframework.records import whole_number
from eosframework.topology.evolution.recorded import RecordedTopology
from eosframework.transactions.ports import Message, Output
from eosframework.txnid import TransactionalId

Check = Callable[[Sequence[str], Any], object]
"""Takes the parts of a key after its kind, and the value; raises if they are invalid."""

_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, TopologyError)
"""Exceptions of code that reads an entry which it did not write."""


def take_entry(entries: dict[str, Any], message: Message) -> None:
    """Store the value of an entry by its key, replacing an earlier one.

    An unreadable entry is stored as its error, because a valid one may follow: only `readable`
    raises.
    """
    try:
        entry = read_entry(message)
    except ControlTopicDamaged as error:
        entries[key_of(message)] = error
    else:
        if entry is not None:
            entries[entry[0]] = entry[1]


def readable(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that were not deleted.

    Raises:
        ControlTopicDamaged: the newest value of one cannot be read.
    """
    for value in entries.values():
        if isinstance(value, ControlTopicDamaged):
            raise value
    return {key: value for key, value in entries.items() if value is not None}


def read_entry(message: Message) -> tuple[str, Any] | None:
    """Return the key and value of an entry; a value of None deletes it.

    Args:
        message: of a control topic.

    Returns:
        None: the message is not an entry, which is reported.

    Raises:
        ControlTopicDamaged: the value of an entry cannot be read.
    """
    raw, data = message.key(), message.value()
    if raw is None:
        return None
    check: Check | None = None
    try:
        key = raw.decode()
        kind, *parts = key.split("/")
        check = _CHECKS.get(kind)
        value: Any = None if data is None else orjson.loads(data)
        if check is not None and data is not None:
            check(parts, value)
    except _UNREADABLE as error:
        if check is not None:
            raise damaged(
                f"entry {key_of(message)!r:.80} of the control topic, {message.value()!r:.80},",
                f"{_place(message)}, {type(error).__name__}: {error}",
            ) from error
        _pass_over(message)
        return None
    return key, value


def entry_output(topic: str, key: str, entry: Any) -> Output:
    """Return the record that writes an entry into a control topic; None deletes it."""
    value = None if entry is None else orjson.dumps(entry)
    return (topic, value, key.encode(), 0, None, None, round(time.time() * 1000), None)


def key_of(message: Message) -> str:
    """Return the key of a message, which may be an unknown one."""
    return (message.key() or b"").decode(errors="replace")


def _topic(_: Sequence[str], value: Any) -> None:
    _require(value["topic_id"], str)
    _require(value["partitions"], int)


def _committed(parts: Sequence[str], value: Any) -> None:
    _sub_topology, _name, number = parts
    _number(number)
    _require(value["topic_id"], str)


def _leases(_: Sequence[str], value: Any) -> None:
    _require(value["released"], int, type(None))
    for name, leased in value["ids"].items():
        sub_topology, number = name.split("/")
        TransactionalId("any", sub_topology, int(number), leased=leased)


def _ownership(_: Sequence[str], value: Any) -> None:
    _require(value["topic_id"], str)


def _released(_: Sequence[str], value: Any) -> None:
    _require(value["at"], int)


def _replayed(parts: Sequence[str], value: Any) -> None:
    _topic_name, number, stretch = parts
    _number(number)
    _number(stretch)
    _require(value["topic_id"], str)
    _require([(int(first), int(end)) for first, end in value["ranges"]], list)


def _failed(parts: Sequence[str], value: Any) -> None:
    _topic_name, number = parts
    _number(number)
    for name, kind in (("offset", int), ("at", int), ("error", str), ("instance", str)):
        _require(value[name], kind)


def _backfill(parts: Sequence[str], value: Any) -> None:
    """Check what workers and audits read of a job; `backfill/` reads all of it."""
    job, *rest = parts
    TransactionalId.backfill("any", job, 0)
    match rest:
        case []:
            _job(value)
        case ["files", _, number]:
            _number(number)
            _require(value, list)
        case ["ends", _]:
            _require_all(value, int)
        case ["task", _, number]:
            _number(number)
            _require(value.get("complete", False), bool)
            _require_all(value["positions"].values(), int)
            _require(value["metadata"], str)
            _require_all(value.get("numberings", {}).values(), str)
        case _:
            _require(value, dict)


def _job(value: Any) -> None:
    _require(value.get("suffix"), str, type(None))
    _require(value.get("files", {}), dict)
    for ranges in value["ranges"].values():
        _require_all([one[bound] for one in ranges for bound in ("first", "end")], int)
    for starts in value.get("own_starts", {}).values():
        _require_all(starts, int)


def _relay(_: Sequence[str], value: Any) -> None:
    _require(value["version"], int)
    if value["version"] == VERSION:  # a relay itself refuses other versions
        RelayPosition.from_entry(value)


def _map(_: Sequence[str], value: Any) -> None:
    _require(value, dict)


_CHECKS: Mapping[str, Check] = {
    "application": _map,
    "topic": _topic,
    "pattern": lambda _, value: _require(value["pattern"], str),
    "written": lambda _, value: _require(value["topic_id"], str),
    "leases": _leases,
    "released": _released,
    "ownership": _ownership,
    "topology": lambda _, value: RecordedTopology.from_entry(value),
    "reset": _map,
    "committed": _committed,
    SUB_TOPOLOGY: _relay,
    "backfill": _backfill,
    "replayed": _replayed,
    "failed": _failed,
    "sink": _map,
}
"""By kind, the first part of a key."""


def _number(text: str) -> None:
    if whole_number(text) is None:
        raise ValueError(f"found {text!r:.40}, expected a number in decimal digits")


def _require_all(found: Iterable[object], type_: type) -> None:
    for one in found:
        _require(one, type_)


def _require(found: object, *types: type) -> None:
    if not isinstance(found, types):
        names = " or ".join(each.__name__ for each in types)
        raise TypeError(f"found {found!r:.40}, expected {names}")


def damaged(what: str, why: str) -> ControlTopicDamaged:
    """Return the error for an entry that this version of eosframework did not write.

    Args:
        what: names the entry.
        why: it cannot be read.
    """
    return ControlTopicDamaged(
        f"{what} cannot be read ({why}): this version of eosframework did not write it. Read the "
        f"topic from its beginning and write the last good value of the key again; and allow only "
        f"the application to write to the topic"
    )


def _pass_over(message: Message) -> None:
    structlog.get_logger("eosframework.kafka").warning(
        "control_entry_passed_over",
        record=_place(message),
        key=repr(message.key())[:80],
    )


def _place(message: Message) -> str:
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"
