from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from eosframework.errors import TopologyError
from eosframework.topology.loader import load_app, read_app
from eosframework.topology.resolve.resolve import resolve

YAML = """
application: a
sources: {s: {topic: s}}
streams: {x: {from: s, steps: [{filter: "MODULE:keep"}], to: t}}
"""


@pytest.fixture(autouse=True)
def restored_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def module_name(tmp_path: Path) -> str:
    return f"functions_{tmp_path.name.replace('-', '_')}"


def write_functions(directory: Path, name: str) -> None:
    (directory / f"{name}.py").write_text("def keep(value):\n    return True\n")


def test_functions_are_found_beside_the_yaml_file(tmp_path: Path) -> None:
    name = module_name(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    write_functions(folder, name)
    (folder / "topology.yaml").write_text(YAML.replace("MODULE", name))
    graph = resolve(load_app("folder/topology.yaml"))
    assert graph.application == "a"


def test_functions_are_found_in_the_current_directory(tmp_path: Path) -> None:
    name = module_name(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    write_functions(tmp_path, name)
    (folder / "topology.yaml").write_text(YAML.replace("MODULE", name))
    resolve(load_app(str(folder / "topology.yaml")))


def test_a_file_where_a_command_is_run_is_no_library(tmp_path: Path) -> None:
    name = module_name(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    write_functions(folder, name)
    (folder / "topology.yaml").write_text(YAML.replace("MODULE", name))
    for file in (tmp_path / "colorsys.py", folder / "colorsys.py"):
        file.write_text("raise AssertionError('not the library')\n")
    sys.modules.pop("colorsys", None)
    load_app(str(folder / "topology.yaml"))
    assert sys.path[-2:] == [str(folder), str(tmp_path)]
    importlib.import_module("colorsys")


PYTHON = """
from eosframework import Topology
{name} = Topology("a")
{name}.stream("s").filter(lambda value: True).to("t")
"""


@pytest.mark.parametrize("name", ["app", "anything"])
def test_a_python_file_is_loaded_by_its_topology(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{module_name(tmp_path)}.py"
    file.write_text(PYTHON.format(name=name))
    app = load_app(file.name)
    assert app.spec.application == "a"
    assert app.source_map.find(("sources", "s")).line == 4
    assert load_app(f"{file.stem}:{name}").spec == app.spec


def test_a_file_named_like_a_module_of_python_is_loaded_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(PYTHON.format(name="app"))
    assert load_app("json.py").spec.application == "a"
    assert hasattr(sys.modules["json"], "dumps")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "declares no topology; expected app = eosframework.Topology"),
        (PYTHON.format(name="one") + PYTHON.format(name="two"), r"several topologies \(one, two\)"),
        ("1 / 0", r"broken_.*\.py:1: ZeroDivisionError while the topology was declared"),
        ("\ndef f(:", r"broken_.*\.py:2: SyntaxError"),
        (
            PYTHON.format(name="app").replace("filter(lambda value: True)", "filter(5)"),
            r"py:4:1: filter was given a int: 5",
        ),
    ],
)
def test_a_python_file_without_a_topology_says_why(
    source: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / f"broken_{module_name(tmp_path)}.py"
    file.write_text(source)
    with pytest.raises(TopologyError, match=message):
        load_app(str(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topolgy.yaml", "does not exist; did you mean 'topology.yaml'"),
        ("nothing.py", "does not exist; check the path"),
        ("folder.yaml", "is not a file"),
        ("flights", "names no topology; expected a .yaml file"),
        ("json:dumps", "is a function; expected an eosframework.Topology"),
        ("no_such_module:app", "there is no module 'no_such_module'"),
        ("latin.yaml", "is not UTF-8"),
    ],
)
def test_a_name_that_leads_nowhere_says_what_was_expected(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "topology.yaml").write_text(YAML)
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "latin.yaml").write_bytes(b"application: \xe9")
    with pytest.raises(TopologyError, match=message):
        load_app(text)


def test_a_file_that_is_wrong_is_loaded_as_far_as_it_goes_or_refused(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(YAML.replace("filter", "filtr"))
    assert read_app("topology.yaml").problems
    with pytest.raises(TopologyError, match=r"topology.yaml:4:33: unknown-key: .*'filtr'"):
        load_app("topology.yaml")


def test_a_file_with_an_attribute_names_one_of_several_topologies(tmp_path: Path) -> None:
    file = tmp_path / f"several_{module_name(tmp_path)}.py"
    one = "from eosframework import Topology\n{} = Topology('{}')\n{}.stream('a').to('b')\n"
    file.write_text(one.format("first", "f", "first") + one.format("second", "s", "second"))
    with pytest.raises(TopologyError, match="several topologies"):
        load_app(str(file))
    assert load_app(f"{file}:second").spec.application == "s"
    with pytest.raises(TopologyError, match="has no 'secnd'; did you mean 'second'"):
        load_app(f"{file}:secnd")
    with pytest.raises(TopologyError, match="is a type; expected an eosframework"):
        load_app(f"{file}:Topology")
    with pytest.raises(TopologyError, match="does not exist"):
        load_app(f"{tmp_path / 'none.py'}:app")
