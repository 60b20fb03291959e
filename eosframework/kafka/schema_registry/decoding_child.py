"""The program of a process that decodes Avro values, and may be ended by them.

It is run by its path, without the framework: `child_decoder` starts it, writes requests to its
stdin, and reads answers from its stdout. Both are a length and a pickle.

A request is (text of the writer's schema, those that it refers to by name, the same for the reader
or None, the encoded value, whether records in unions have names); an answer is (value, None) or
(None, text of the error).
"""

import io
import json
import pickle
import resource
import struct
import sys
from typing import Any, BinaryIO

from fastavro import schemaless_reader  # pyright: ignore[reportUnknownVariableType]
from fastavro.repository import AbstractSchemaRepository
from fastavro.schema import load_schema

KNOWN_SCHEMAS = 100


class _Named(AbstractSchemaRepository):
    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def load(self, name: str) -> Any:
        found = json.loads(self._texts[name]) if name in self._texts else None
        return {"type": found} if isinstance(found, str) else found


def _parsed(text: str, named: dict[str, str], known: dict[str, Any]) -> Any:
    if text not in known:
        if len(known) >= KNOWN_SCHEMAS:
            known.clear()
        known[text] = load_schema("$root", repo=_Named({**named, "$root": text}))
    return known[text]


def _limit(seconds: int, memory_bytes: int) -> None:
    """Let the kernel end this process after so many further seconds of CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + seconds + 1
    for limit, value in ((resource.RLIMIT_CPU, most), (resource.RLIMIT_AS, memory_bytes)):
        _, hard = resource.getrlimit(limit)
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (soft, hard))


def _serve(requests: BinaryIO, answers: BinaryIO, seconds: int, memory_bytes: int) -> None:
    known: dict[str, Any] = {}
    while length := requests.read(4):
        request = pickle.loads(requests.read(*struct.unpack(">I", length)))
        writer, named, reader, data, has_choice = request
        _limit(seconds, memory_bytes)
        try:
            schema = _parsed(writer, named, known)
            own = None if reader is None else _parsed(reader, {}, known)
            value = schemaless_reader(io.BytesIO(data), schema, own, has_choice)
            answer = pickle.dumps((value, None), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            answer = pickle.dumps((None, f"{type(error).__name__}: {error}"[:300]))
        answers.write(struct.pack(">I", len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _serve(sys.stdin.buffer, sys.stdout.buffer, *map(int, sys.argv[1:]))
