"""Inputs as any producer may write them, and the producers that do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaProducer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

MOST_BYTES = 16_000_000
"""The largest batch of the topic to which records of any size are copied."""


class Outcome(StrEnum):
    """What becomes of an input; it is exactly one of these."""

    OUTPUT = "output"
    DEAD = "dead letter"


ALL = frozenset(Outcome)
OUTPUT = frozenset({Outcome.OUTPUT})
DEAD = frozenset({Outcome.DEAD})


@dataclass(frozen=True)
class Input:
    """A record to be fed.

    Args:
        lane: which source it goes to.
        id: unique; lanes that lose sight of offsets have it in their values.
        headers: names and values in bytes.
        timestamp: in milliseconds since the epoch; None: the producer's clock.
        codec: one of `CODECS`; the client that can write every header has only the first two.
        expected: what may become of it.
        schema: text of the schema whose number is put before the value; None: there is none.
    """

    lane: str
    id: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int | None = None
    codec: str = "none"
    expected: frozenset[Outcome] = ALL
    name: str = ""
    schema: str | None = None

    def __str__(self) -> str:
        shown = ", ".join(f"{field}={getattr(self, field)!r:.300}" for field in _SHOWN)
        return f"{self.name or 'input'} {self.id} of lane {self.lane} ({shown})"


_SHOWN = ("key", "value", "headers", "timestamp", "codec")


class _Bytes(str):
    """A header's name that is sent as given bytes."""

    __slots__ = ("raw",)

    def __new__(cls, raw: bytes) -> _Bytes:
        made = super().__new__(cls, "name")
        made.raw = raw
        return made

    def encode(self, *_: Any, **__: Any) -> bytes:
        return self.raw


class Feeder:
    """Writes inputs to the topics of their lanes, and tells at which offsets they are.

    Args:
        prefix: of the lanes' topics.
    """

    def __init__(self, bootstrap_servers: str, prefix: str) -> None:
        self._servers, self._prefix = bootstrap_servers, prefix
        self._typed: dict[str, Producer] = {}

    def feed(self, inputs: Iterable[Input]) -> dict[tuple[str, int], Input]:
        """Write inputs and return each by its lane and offset."""
        found: dict[tuple[str, int], Input] = {}
        failures: list[str] = []
        others: list[Input] = []
        for each in inputs:
            names = (name for name, _ in each.headers)
            # Of a timestamp of 0 confluent_kafka makes the present.
            if all(map(_is_c_text, names)) and each.timestamp not in (0, -1):
                self._produce(each, found, failures)
            else:
                others.append(each)
        for producer in self._typed.values():
            assert producer.flush(120) == 0
        assert failures == []
        for codec in {each.codec == "none" for each in others}:
            found |= self._send([each for each in others if (each.codec == "none") == codec])
        return found

    def close(self) -> None:
        """Let the connections go."""
        self._typed.clear()

    def _produce(
        self, each: Input, found: dict[tuple[str, int], Input], failures: list[str]
    ) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                found[each.lane, message.offset()] = each
            else:
                failures.append(f"{each}: {error}")

        if each.codec not in self._typed:
            self._typed[each.codec] = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "enable.idempotence": True,
                    "compression.type": each.codec,
                    "message.max.bytes": 100_000_000,
                    "linger.ms": 5,
                }
            )
        timestamp: Any = {} if each.timestamp is None else {"timestamp": each.timestamp}
        self._typed[each.codec].produce(
            self._prefix + each.lane,
            each.value,
            each.key,
            0,
            headers=[(name.decode(), value) for name, value in each.headers],
            on_delivery=delivered,
            **timestamp,
        )

    def _send(self, inputs: Sequence[Input]) -> dict[tuple[str, int], Input]:
        """Write inputs with headers that confluent_kafka does not write."""
        producer = KafkaProducer(
            bootstrap_servers=self._servers,
            compression_type=None if inputs[0].codec == "none" else "gzip",
            max_request_size=100_000_000,
        )
        try:
            sent = [
                producer.send(
                    self._prefix + each.lane,
                    each.value,
                    each.key,
                    [(_Bytes(name), value or b"") for name, value in each.headers],
                    0,
                    each.timestamp,
                )
                for each in inputs
            ]
            places = [
                (each.lane, future.get(120).offset)
                for each, future in zip(inputs, sent, strict=True)
            ]
            return dict(zip(places, inputs, strict=True))
        finally:
            producer.close()


def _is_c_text(name: bytes) -> bool:
    """Tell whether confluent_kafka writes a header of this name."""
    try:
        return "\0" not in name.decode()
    except UnicodeDecodeError:
        return False
