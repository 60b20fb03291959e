"""Messages that anybody who may publish could put into the outbox.

A new case is a line here. `TOPIC` stands for a topic that exists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """The arguments of `eosframework.publish`, in SQL.

    Args:
        arrives: whether Kafka takes it; else it is set aside.
    """

    name: str
    arguments: str
    arrives: bool = True


MESSAGES = (
    Published("an empty key and value", "'TOPIC', '', ''"),
    Published("nothing at all", "'TOPIC', NULL, NULL"),
    Published("any bytes", r"'TOPIC', '\xff00fe', '\x00'"),
    Published("headers without members", "'TOPIC', 'k', 'v', '{}'"),
    Published("headers of any JSON", """'TOPIC', 'k', 'v', '{"a": [1, {"b": null}], "": 1e300}'"""),
    Published("bytes in a header", """'TOPIC', 'k', 'v', '{"a": {"base64": "AP8="}}'"""),
    Published(
        "many headers",
        "'TOPIC', 'k', 'v', (SELECT jsonb_object_agg(n, n) FROM generate_series(1, 500) n)",
    ),
    *(
        Published(name, arguments, arrives=False)
        for name, arguments in (
            ("a name that is no topic's", "'no such topic!', 'k', 'v'"),
            ("a topic that nobody has made", "'TOPIC.nowhere', 'k', 'v'"),
            ("a topic without a name", "'', 'k', 'v'"),
            ("headers of numbers", "'TOPIC', 'k', 'v', '[1, 2, 3]'"),
            ("headers that are a text", """'TOPIC', 'k', 'v', '"x"'"""),
            ("headers of lists", "'TOPIC', 'k', 'v', '[[1, 2, 3]]'"),
            ("bytes that are no base64", """'TOPIC', 'k', 'v', '{"a": {"base64": "?"}}'"""),
            ("what brokers refuse", "'TOPIC', 'k', convert_to(repeat('x', 3000000), 'UTF8')"),
        )
    ),
)
