from __future__ import annotations

from pathlib import Path

import pytest

from eosframework.errors import TopologyError
from eosframework.process.signals import handled
from eosframework.serialization import references


class Outer:
    @staticmethod
    def inside() -> None: ...


def test_a_reference_finds_what_it_names() -> None:
    assert references.find("json:dumps").__name__ == "dumps"
    assert references.find(f"{__name__}:Outer.inside") is Outer.inside


def test_an_importable_object_is_named_so_that_it_is_found_again() -> None:
    name = references.name_of(Outer.inside)
    assert name is not None
    assert name == f"{__name__}:Outer.inside"
    assert references.find(name) is Outer.inside


def test_a_lambda_goes_by_its_place() -> None:
    nameless = lambda value: value  # noqa: E731
    assert references.name_of(nameless) is None
    assert references.place_of(nameless).startswith("<lambda> at test_references.py:")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("json.dumps", "is not MODULE:ATTRIBUTE"),
        (":dumps", "is not MODULE:ATTRIBUTE"),
        ("json:", "is not MODULE:ATTRIBUTE"),
        ("json:dump_s", "module 'json' has no attribute 'dump_s'; did you mean 'dumps?'"),
        ("jsno:dumps", "there is no module 'jsno'; did you mean"),
        ("json.nothing:dumps", "there is no module 'json.nothing'"),
    ],
)
def test_what_cannot_be_imported_is_named_with_the_closest(reference: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        references.find(reference)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import not_there_at_all", "No module named 'not_there_at_all'"),
        ("x = 1 / 0", r"ZeroDivisionError: .*broken_\w+\.py:1\)"),
        ("def f(:", r"SyntaxError: .*broken_\w+\.py:1\)"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt('enough')", "KeyboardInterrupt: enough"),
    ],
)
def test_a_module_that_fails_to_import_says_why_and_where(
    source: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    name = f"broken_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with handled(lambda *_: None), pytest.raises(TopologyError, match=message):
        references.find(f"{name}:f")
