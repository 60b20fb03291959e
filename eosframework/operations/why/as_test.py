"""A pytest from a record, the state that it met and its output in the log.

It passes as it is printed, which shows that it reproduces the output; `why` reports a record that
runs differently now, and its test fails. To fix a mistake, the user changes `EXPECTED` to the right
output: the test fails until the functions give it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from eosframework.operations.why.explanation import Explanation
from eosframework.operations.why.passed_steps import decoded_or_none, serdes_of
from eosframework.operations.why.scene import Scene
from eosframework.transactions.ports import Message


def as_test(found: Explanation, scene: Scene, application: str) -> str:
    """Return the source of a test module.

    Args:
        found: the answer about the output.
        scene: of the output; it has run.
        application: the APP argument of the command.
    """
    return "\n".join(_lines(found, scene, application)) + "\n"


def _lines(found: Explanation, scene: Scene, application: str) -> Iterator[str]:
    place, code = found.place, scene.code
    topic = place.partition.topic
    name = re.sub(r"[^a-z0-9]+", "_", str(place).lower()).strip("_")
    origin = f"from {found.input}, " if found.input is not None else ""
    yield f'"""The output {place}, {origin}by task {found.task}.'
    yield ""
    yield "Printed by `eosframework why --as-test`. To fix a mistake, change EXPECTED to the right"
    yield "output: the test fails until the functions give it. Run it where the command was run."
    yield '"""'
    yield ""
    yield "from eosframework.testing import TopologyTestDriver"
    yield ""
    yield f"APP = {application!r}"
    yield ""
    yield "# The entries that the record met, by store; keys and values as in the changelog."
    yield "STATE = {"
    for store, entries in scene.met().items():
        yield f"    {store!r}: {{"
        yield from (f"        {key!r}: {value!r}," for key, value in entries.items())
        yield "    },"
    yield "}"
    yield ""
    yield "# Topic, partition, key, value, timestamp and headers."
    yield "RECORDS = ["
    yield from (f"    {_record(partition[1], message)}," for partition, message in scene.records)
    yield "]"
    yield ""
    key, value = _decoded(found, scene)
    yield "# Key, value and timestamp in the log."
    yield f"EXPECTED = ({key!r}, {value!r}, {found.timestamp})"
    yield ""
    yield ""
    yield f"def test_{name}() -> None:"
    yield f"    with TopologyTestDriver(APP, partitions={dict(code.partitions)!r}) as driver:"
    yield "        driver.restore("
    yield f"            {code.part.name!r}, STATE, partition={code.number},"
    yield f"            stream_time={scene.start.stream_time},"
    yield "        )"
    yield "        for topic, partition, key, value, timestamp, headers in RECORDS:"
    yield "            driver.send("
    yield "                topic, value, key=key, timestamp=timestamp, headers=headers,"
    yield "                partition=partition,"
    yield "            )"
    yield "        driver.run()"
    yield f"        given = driver.read({topic!r})"
    shown = "record.value" if _is_literal(_raw(found, scene)[1]) else "repr(record.value)"
    key_shown = "record.key" if _is_literal(_raw(found, scene)[0]) else "repr(record.key)"
    yield f"    found = [({key_shown}, {shown}, record.timestamp) for record in given]"
    yield "    assert EXPECTED in found"


def _record(partition: int, message: Message) -> str:
    headers = [pair for pair in message.headers() or () if not pair[0].startswith("__eos.receipt")]
    parts = (
        message.topic(),
        partition,
        message.key(),
        message.value(),
        message.timestamp()[1],
        headers,
    )
    return repr(parts)


def _raw(found: Explanation, scene: Scene) -> tuple[Any, Any]:
    """Return key and value of the output as the driver returns them."""
    key_serde, value_serde = serdes_of(scene.code.part, found.place.partition.topic)
    record = scene.output
    return decoded_or_none(record.key(), key_serde), decoded_or_none(record.value(), value_serde)


def _decoded(found: Explanation, scene: Scene) -> tuple[Any, Any]:
    key, value = _raw(found, scene)
    return (key if _is_literal(key) else repr(key), value if _is_literal(value) else repr(value))


def _is_literal(value: Any) -> bool:
    """Return whether the representation of a value is Python for it."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False
