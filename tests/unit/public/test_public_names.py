"""The public API: each name of it, and the types that a user's program sees."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.house import PRODUCT, REPOSITORY

PUBLIC = {
    "eosframework": {
        "Context",
        "Effect",
        "EosError",
        "GlobalTable",
        "InstanceFenced",
        "KeyElsewhere",
        "KeyedStore",
        "KeyedStream",
        "Record",
        "RunError",
        "RunningWorker",
        "Serde",
        "StoreNotReady",
        "Stream",
        "Topology",
        "TransactionError",
        "UserError",
        "WindowResult",
        "WindowedStream",
        "WorkerStatus",
        "avro",
        "dead_letter",
        "hopping",
        "json_schema",
        "protobuf",
        "run",
        "serde_of",
        "session",
        "sliding",
        "start",
        "tumbling",
    },
    "eosframework.spark.backfill": {"Backfill", "outputs_of", "spark_session"},
    "eosframework.kafka": {"ReadCommittedConsumer", "TransactionalProducer"},
    "eosframework.postgres.outbox": {"emit", "emit_async", "publish", "publish_async"},
    "eosframework.spark": {"SinkProgress", "both", "kafka_sink", "register", "table_sink"},
    "eosframework.testing": {
        "Fault",
        "Sent",
        "TopologyDriver",
        "TopologyTestDriver",
        "arm",
        "crash_everywhere",
        "cut_everywhere",
        "fired",
    },
}
"""Every public name. A change here is a change for users: it goes into the changelog."""

PROGRAM = Path(__file__).with_name("shop.py")
TYPED = REPOSITORY / "tests" / "support" / "typing" / "typed_topology.py"


@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names_are_those_promised(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) == PUBLIC[package]
    assert module.__all__ == sorted(module.__all__, key=lambda name: (name[0].islower(), name))
    assert all(hasattr(module, name) for name in module.__all__)
    listed = set(dir(module))
    assert listed >= PUBLIC[package]
    assert not listed & {"Any", "TYPE_CHECKING", "annotations", "import_module"}


def test_each_package_says_whether_it_is_public() -> None:
    names = {f"eosframework.{file.parent.name}" for file in PRODUCT.glob("*/__init__.py")}
    names |= PUBLIC.keys() - {"eosframework"}
    says = {name: import_module(name).__doc__ or "" for name in names}
    public = {name for name, text in says.items() if "\n\nPublic: the names in `__all__`" in text}
    internal = {n for n, t in says.items() if t.endswith("Internal: no module here is public.\n")}
    assert public == PUBLIC.keys() - {"eosframework"}
    assert internal == says.keys() - public


@pytest.mark.parametrize("package", PUBLIC)
def test_the_users_program_uses_each_package(package: str) -> None:
    assert f"from {package} import" in PROGRAM.read_text()


def test_the_package_says_that_it_is_typed() -> None:
    assert (REPOSITORY / "eosframework" / "py.typed").is_file()


@pytest.mark.parametrize(
    "checker", [pytest.param(["mypy", "--strict"], marks=pytest.mark.exhaustive), ["basedpyright"]]
)
def test_a_users_program_passes_strict_type_checks(checker: list[str]) -> None:
    """A complaint that is marked and does not come is an error as well."""
    command = [
        str(Path(sys.executable).with_name(checker[0])),
        *checker[1:],
        str(PROGRAM),
        str(TYPED),
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
