"""What `tests.house` counts, in modules made up for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import (
    FORBIDDEN_OPENINGS,
    PRODUCT,
    Docstring,
    Module,
    few_lines,
    import_circles,
    read_module,
    read_package,
    repeated_basenames,
    rows,
    step_labels,
    top_level_entries,
)

TEXT = '''\
"""What it is.

More.
"""

from __future__ import annotations

from a import (
    b,
)

# A reason.
LIMIT = 3  # a trailing comment is no comment line
"""How much.

In pieces."""

QUERY = """
# no comment

SELECT
"""


class Box:
    """Which one."""

    # noqa: D105
    size = 1
    """A docstring of an attribute."""

    def open(self) -> None:
        """Open it."""

    async def shut(self) -> str:
        """Whoever shuts it."""
        import c

        return f"""{c}
            # no comment
        """
'''


def read(text: str, name: str = "p.m") -> Module:
    return read_module(text, name, Path(f"{name.replace('.', '/')}.py"))


def test_each_line_is_counted_as_what_it_is() -> None:
    module = read(TEXT)
    assert module.lines == len(TEXT.splitlines())
    # imports 1 + 3 + 1, LIMIT, QUERY with its lines that are filled, class, size, two functions,
    # and the string of three lines
    assert module.code == 5 + 1 + 4 + 1 + 1 + 2 + 3
    assert module.imports == 5
    assert module.comments == 1


def test_docstrings_have_a_kind_and_a_line_and_those_of_attributes_are_left_out() -> None:
    assert set(read(TEXT).docstrings) == {
        Docstring("module", 1, "What it is.\n\nMore."),
        Docstring("class", 26, "Which one."),
        Docstring("function", 33, "Open it."),
        Docstring("function", 36, "Whoever shuts it."),
    }


def test_a_module_without_a_line_is_nothing() -> None:
    module = read("")
    assert (module.lines, module.code, module.imports, module.comments) == (0, 0, 0, 0)
    assert rows([module], [])["code-only lines"] == "0"


@pytest.mark.parametrize("word", FORBIDDEN_OPENINGS)
def test_a_docstring_that_opens_with_such_a_word_is_found(word: str) -> None:
    assert Docstring("module", 1, f"{word} it is.").is_forbidden
    assert Docstring("module", 1, f"{word}, then.").is_forbidden


@pytest.mark.parametrize(
    "text", ["", "Whatever.", "Thatch.", "Return what is there.", "what in small letters", "Howto"]
)
def test_a_docstring_with_another_opening_is_not(text: str) -> None:
    assert not Docstring("module", 1, text).is_forbidden


def test_circles_are_groups_that_import_each_other_also_in_functions() -> None:
    modules = [
        read("import p.b", "p.a"),
        read("def f():\n    from p import c", "p.b"),
        read("from p.a import name", "p.c"),
        read("from p.a import name\nfrom p import f", "p.d"),
        read("from p.f import a", "p.e"),
        read("from p.e import b", "p.f"),
        read("import os\nfrom elsewhere import p", "p"),
    ]
    assert import_circles(modules) == [["p.a", "p.b", "p.c"], ["p.e", "p.f"]]


def test_a_package_that_imports_its_own_module_is_no_circle() -> None:
    modules = [read("from p.a import name", "p"), read("import os", "p.a")]
    assert import_circles(modules) == []


def test_a_relative_import_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        read("\nfrom . import a")


def test_a_package_is_read_from_its_files(tmp_path: Path) -> None:
    house = tmp_path / "house"
    for name in ("__init__", "one", "room/__init__", "room/one", "room/two", "no_package/three"):
        file = house / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n" * (41 if name == "room/two" else 1))
    (house / "data.sql").write_text("SELECT 1")

    modules = read_package(house)

    assert [module.name for module in modules] == [
        "house",
        "house.no_package.three",
        "house.one",
        "house.room",
        "house.room.one",
        "house.room.two",
    ]
    assert top_level_entries(house) == ["one", "room"]
    assert repeated_basenames(modules) == {"one": 2}
    assert [module.name for module in few_lines(modules)] == [
        "house.no_package.three",
        "house.one",
        "house.room.one",
    ]
    assert rows(modules, top_level_entries(house))["modules"] == "6"


def test_steps_are_stated_by_the_modules_whose_docstrings_have_the_first_one() -> None:
    texts = [
        '"""Both.\n\n    A1  one\n    A2  two\n    B1. one\n"""',
        '"""Goes on at A2.\n\n    A2  two\n"""',
        '"""Another.\n\nB1. one\n"""',
    ]
    modules = [read_module(text, str(n), Path("x.py")) for n, text in enumerate(texts)]
    assert step_labels(modules) == {"A": ["0"], "B": ["0", "2"]}


def test_each_step_has_a_label_of_its_own() -> None:
    """One label has one meaning in the project."""
    stated = step_labels(read_package(PRODUCT))
    assert {letters: names for letters, names in stated.items() if len(names) > 1} == {}


CODE, MODULES, IMPORT_SHARE, ENTRIES = 78_000, 555, 0.113, 20
"""The figures reached, with room for small changes; what needs more raises them and says why."""


def test_the_product_is_not_larger_than_it_was_made() -> None:
    modules = read_package(PRODUCT)
    code = sum(module.code for module in modules)
    imports = sum(module.imports for module in modules)
    assert code <= CODE
    assert len(modules) <= MODULES
    assert imports <= IMPORT_SHARE * code
    assert len(top_level_entries(PRODUCT)) <= ENTRIES
    assert import_circles(modules) == []
