"""The bill of materials names what the locks hold, and is valid CycloneDX."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.support.documents.bill_of_materials import (
    BILL,
    PACKAGES,
    Package,
    bill_of_materials,
    coordinates,
    read_packages,
)

LOCK = f"""\
anyio==4.16.0 ; sys_platform != 'emscripten' \\
    --hash=sha256:{"a" * 64} \\
    --hash=sha256:{"b" * 64}
    # via httpx2
pyspark==4.0.0 \\
    --hash=sha256:{"c" * 64}
    # via
    #   eosframework (pyproject.toml)
    #   hatchling
"""


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return json.loads(BILL.read_text(encoding="utf-8"))


def test_it_is_up_to_date_with_the_locks() -> None:
    assert BILL.read_text(encoding="utf-8") == bill_of_materials(), "run: make bill-of-materials"


def test_it_is_valid(bill: dict[str, Any]) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None


def test_every_pin_of_the_lock_is_in_it(bill: dict[str, Any]) -> None:
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)", PACKAGES.read_text(), re.MULTILINE)
    assert len(pins) > 50
    urls = {component["purl"] for component in bill["components"]}
    assert not {f"pkg:pypi/{name}@{version}" for name, version in pins} - urls


def test_jars_are_in_it_with_their_sha256(bill: dict[str, Any]) -> None:
    jars = [each for each in bill["components"] if each["purl"].startswith("pkg:maven/")]
    assert len(jars) > 40
    assert {jar["hashes"][0]["alg"] for jar in jars} == {"SHA-256"}
    assert "pkg:maven/org.apache.kafka/kafka_2.13@4.4.0" in {jar["purl"] for jar in jars}


def test_every_component_is_needed_by_another(bill: dict[str, Any]) -> None:
    needed = {ref for each in bill["dependencies"] for ref in each.get("dependsOn", ())}
    assert {component["bom-ref"] for component in bill["components"]} == needed


def test_a_lock_is_read_with_markers_and_origins() -> None:
    assert read_packages(LOCK) == [
        Package("anyio", "4.16.0", 'sys_platform != "emscripten"', ("httpx2",)),
        Package("pyspark", "4.0.0", None, ("eosframework", "hatchling")),
    ]


@pytest.mark.parametrize("line", ["orjson>=3", "    --hash=md5:00", "https://host/a.whl"])
def test_a_line_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line.strip())):
        read_packages(f"{LOCK}{line}\n")


@pytest.mark.parametrize(
    ("jar", "expected"),
    [
        ("zstd-jni-1.5.6-10.jar", ("com.github.luben", "zstd-jni", "1.5.6-10")),
        (
            "jackson-annotations-2.21.jar",
            ("com.fasterxml.jackson.core", "jackson-annotations", "2.21"),
        ),
        ("commons-logging-1.3.5.jar", ("commons-logging", "commons-logging", "1.3.5")),
        (
            "spark-sql-kafka-0-10_2.13-4.0.0.jar",
            ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.0.0"),
        ),
    ],
)
def test_a_jar_has_its_coordinates(jar: str, expected: tuple[str, str, str]) -> None:
    assert coordinates(jar) == expected


@pytest.mark.parametrize("jar", ["left-pad-1.0.0.jar", "kafka.jar"])
def test_a_jar_that_is_not_known_is_named(jar: str) -> None:
    with pytest.raises(ValueError, match=re.escape(jar)):
        coordinates(jar)
