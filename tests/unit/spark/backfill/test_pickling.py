"""A graph reaches processes that do not have the user's modules."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eosframework.errors import TopologyError
from eosframework.spark.session.executors import pack, pack_value, unpack_value, user_modules
from eosframework.topology.dsl.builder import Topology
from eosframework.topology.graph.graph import Graph
from eosframework.topology.loader import load_app
from eosframework.topology.resolve.resolve import resolve
from tests.support.applications.random_topologies import KINDS, RandomApplication

APP = """\
from eosframework import Topology
from pydantic import BaseModel, Field

from {helper} import FACTOR

class Number(BaseModel):
    n: int = Field(alias="N")

def multiplied(number: Number) -> dict:
    return {{"n": number.n * FACTOR}}

app = Topology("packed")
app.stream("in", key=str, value=Number).map_values(multiplied).to("out", value=dict)
"""

ELSEWHERE = """\
import sys
from eosframework.spark.session.executors import unpack
from eosframework.engine.codegen.compiler import compile_part
from eosframework.engine.failures.failure_handler import FailureHandler
from eosframework.testing import Sent

graph = unpack(sys.stdin.buffer.read())
[part] = [compile_part(part) for part in graph.sub_topologies]
out = []
part.sources["in"].run([Sent("in", b'{"N": 2}', b"k", 1, 0, None)], out, 0, FailureHandler(), None)
print(out[0][1].decode())
"""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A topology in a file that imports another one."""
    before = set(sys.modules)
    (tmp_path / "packed_factor.py").write_text("FACTOR = 21\n")
    file = tmp_path / "packed_app.py"
    file.write_text(APP.format(helper="packed_factor"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield resolve(load_app(str(file)))
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_functions_and_models_of_the_user_travel_by_value(graph: Graph, tmp_path: Path) -> None:
    packed = pack(graph)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=packed, stdout=subprocess.PIPE, check=True
    )
    assert done.stdout.decode().strip() == '{"n":42}'


def test_modules_of_installed_packages_do_not_travel() -> None:
    names = {module.__name__.partition(".")[0] for module in user_modules()}
    assert "tests" in names
    assert not names & {"eosframework", "pydantic", "orjson", "os", "pyspark"}


def test_a_module_with_two_names_is_packed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `requests.packages.urllib3` is urllib3."""
    (tmp_path / "aliased.py").write_text("FACTOR = 21\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("aliased")
    monkeypatch.setitem(sys.modules, "another.name", module)
    try:
        assert [it.__name__ for it in user_modules()].count("aliased") == 1
        assert unpack_value(pack_value({"plain": 1}, "a value")) == {"plain": 1}
    finally:
        del sys.modules["aliased"]


def test_libraries_in_a_directory_of_the_cluster_do_not_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped.py").write_text("FACTOR = 21\n")
    (tmp_path / "shipped-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("shipped")
    try:
        assert "shipped" not in [it.__name__ for it in user_modules()]
    finally:
        del sys.modules["shipped"]


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_every_kind_travel(kind: str) -> None:
    """A serde that is made of nested functions would be sent by value, with what they refer to."""
    for seed in range(6):
        graph = resolve(RandomApplication("packed", kind, seed).topology.loaded())
        found = unpack_value(pack_value(graph, "the application"))
        assert [part.name for part in found.sub_topologies] == [
            part.name for part in graph.sub_topologies
        ]


def test_a_function_that_holds_a_lock_is_refused() -> None:
    lock = threading.Lock()

    def guarded(value: dict[str, int]) -> dict[str, int]:
        with lock:
            return value

    app = Topology("packed")
    app.stream("in", key=str, value=dict).map_values(guarded).to("out", value=dict)
    with pytest.raises(TopologyError, match="cannot be sent to executors"):
        pack(resolve(app.loaded()))
