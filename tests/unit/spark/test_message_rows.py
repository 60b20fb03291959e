"""Messages on executors: the class that protoc made stays with the driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eosframework.config import RegistrySettings
from eosframework.serialization.schemas import Codec, codec_of, protobuf
from eosframework.spark.sinks.kafka.row_encoders import MessageEncoder

pickling: Any = pytest.importorskip("pyspark.cloudpickle")

SETTINGS = RegistrySettings(url="http://127.0.0.1:1")
ELSEWHERE = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    encoder = pickle.load(file)
assert "tests" not in sys.modules
try:
    encoder({"nope": 1})
except ValueError as error:
    print(error)
"""


def encoder() -> MessageEncoder:
    codec: Codec = codec_of(protobuf("tests.support.applications.schema_functions:FlightMessage"))
    codec.bind(lambda value: value.SerializeToString(), bytes)
    return MessageEncoder(codec.at("flights", is_key=False, written=True), SETTINGS)


def test_an_encoder_is_unpickled_where_the_class_cannot_be_imported(tmp_path: Path) -> None:
    file = tmp_path / "encoder"
    file.write_bytes(pickling.dumps(encoder()))
    done = subprocess.run(
        [sys.executable, "-P", "-c", ELSEWHERE, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == 'Protocol message Flight has no "nope" field.'


def test_unpickled_encoders_of_one_process_are_one() -> None:
    packed = pickling.dumps(encoder())
    assert pickling.loads(packed) is pickling.loads(packed)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("text", "a message is made of a struct, not of a str"),
        ({"minutes": 2**40}, "Value out of range"),
    ],
)
def test_values_that_fit_no_message_are_refused(fields: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        encoder()(fields)
