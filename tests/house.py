"""The size and shape of the code, as a table.

`python -m tests.house` prints it for `eosframework/`; an argument names the directory of another
package.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
PRODUCT = REPOSITORY / "eosframework"

FORBIDDEN_OPENINGS = ("What", "Who", "Whoever", "Which", "How", "Where", "Whether", "That")
"""Words that no docstring of a module, a class or a function begins with."""

FEW_LINES = 40
"""A module with so many lines of code, or fewer, may be a part of another one."""

_TOOLS = ("# noqa", "# pyright:", "# type:", "# pragma:", "#!")
"""What a comment begins with that is for a tool and not for a reader."""

_COMMENT = re.compile(r"^#.*|  # .*")
"""A comment on a line of its own, or after code."""


_FIRST_STEP = re.compile(r"^\s*([A-Z]{1,2})1[,.]? .*\w", re.MULTILINE)
"""A line of a docstring that begins with the label of the first step of several."""


@dataclass(frozen=True)
class Docstring:
    """The docstring of a module, a class or a function.

    Args:
        kind: "module", "class" or "function".
        line: of its first line.
        text: as `ast.get_docstring` gives it.
    """

    kind: str
    line: int
    text: str

    @property
    def is_forbidden(self) -> bool:
        """Whether it begins with one of `FORBIDDEN_OPENINGS`."""
        first = self.text.split(maxsplit=1)[:1]
        return bool(first) and first[0].rstrip(",:;.'") in FORBIDDEN_OPENINGS


@dataclass(frozen=True)
class Module:
    """The measures of one module.

    Args:
        name: dotted.
        file: its place.
        lines: all of them.
        code: lines with code: no blank ones, comments or docstrings.
        imports: lines of code that belong to import statements.
        comments: lines that hold nothing but a comment for readers.
        docstrings: in the order of the file.
        imported: dotted names after `import`, and `from X import Y` as `X.Y`.
    """

    name: str
    file: Path
    lines: int
    code: int
    imports: int
    comments: int
    docstrings: tuple[Docstring, ...]
    imported: tuple[str, ...]


def read_module(text: str, name: str, file: Path) -> Module:
    """Return the measures of a module's text."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    lines = [line.strip() for line in text.splitlines()]
    in_docstrings = _lines_of(node for node in nodes if _is_string_alone(node))
    commented = {number for number, line in comment_texts(text, nodes) if line.startswith("#")}
    filled = {number for number, line in enumerate(lines, start=1) if line}
    code = filled - in_docstrings - commented
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return Module(
        name,
        file,
        lines=len(lines),
        code=len(code),
        imports=len(_lines_of(imports) & code),
        comments=sum(not lines[number - 1].startswith(_TOOLS) for number in commented),
        docstrings=tuple(docstrings(nodes)),
        imported=tuple(_imported(imports)),
    )


def _is_string_alone(node: ast.AST) -> bool:
    """Tell whether a statement is a string: a docstring, also that of an attribute."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def comment_texts(text: str, nodes: Iterable[ast.AST]) -> list[tuple[int, str]]:
    """Return the comments of a module with their lines: "# ..." on its own, " # ..." after code."""
    # A "#" in a string of several lines begins no comment.
    in_strings = {
        number
        for node in nodes
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if node.end_lineno != node.lineno
    }
    return [
        (number, match[0])
        for number, line in enumerate(text.splitlines(), start=1)
        if number not in in_strings and (match := _COMMENT.search(line.strip()))
    ]


def _lines_of(nodes: Iterable[Any]) -> set[int]:
    return {number for node in nodes for number in range(node.lineno, node.end_lineno + 1)}


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[Docstring]:
    """Yield the docstrings of the modules, classes and functions among the nodes of a tree."""
    for node in nodes:
        match node:
            case ast.Module():
                kind = "module"
            case ast.ClassDef():
                kind = "class"
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                kind = "function"
            case _:
                continue
        text = ast.get_docstring(node)
        if text is not None:
            yield Docstring(kind, node.body[0].lineno, text)


def _imported(imports: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    for node in imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            raise ValueError(f"line {node.lineno} has a relative import; expected absolute ones")


def read_package(directory: Path) -> list[Module]:
    """Return the modules of a package, its own `__init__` first."""
    modules: list[Module] = []
    for file in sorted(directory.rglob("*.py")):
        parts = [directory.name, *file.relative_to(directory).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(read_module(file.read_text(encoding="utf-8"), name, file))
    return modules


def import_circles(modules: Iterable[Module]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or by others of the group.

    All imports count: those inside functions and those for type checkers as well.
    """
    wanted = {module.name: module.imported for module in modules}
    edges = {
        name: {target for each in imported if (target := _owner(each, wanted)) and target != name}
        for name, imported in wanted.items()
    }
    reached = {name: _reachable(name, edges) for name in edges}
    circles = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in edges
        if name in reached[name]
    }
    return [list(circle) for circle in sorted(circles)]


def _owner(imported: str, modules: Mapping[str, object]) -> str | None:
    """Return the module that is imported by `X.Y`: it, or X if Y is only a name in it."""
    if imported in modules:
        return imported
    outer = imported.rpartition(".")[0]
    return outer if outer in modules else None


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges[waiting.pop()]:
            if target not in found:
                found.add(target)
                waiting.append(target)
    return found


def top_level_entries(directory: Path) -> list[str]:
    """Return the packages and modules directly in a package."""
    packages = [entry.name for entry in directory.iterdir() if (entry / "__init__.py").is_file()]
    modules = [file.stem for file in directory.glob("*.py") if file.name != "__init__.py"]
    return sorted(packages + modules)


def repeated_basenames(modules: Iterable[Module]) -> dict[str, int]:
    """Return the names of files that occur in several folders, with how often."""
    names = Counter(module.file.stem for module in modules)
    del names["__init__"]
    return {name: count for name, count in sorted(names.items()) if count > 1}


def forbidden_docstrings(modules: Iterable[Module]) -> list[tuple[Module, Docstring]]:
    """Return the docstrings that begin with one of `FORBIDDEN_OPENINGS`, with their modules."""
    return [(m, docstring) for m in modules for docstring in m.docstrings if docstring.is_forbidden]


def step_labels(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Return by the letters of step labels (`T` of T1 to T5) the modules that state the steps.

    The statement of steps is a docstring with a line for the first one.
    """
    found: dict[str, list[str]] = {}
    for module in modules:
        for letters in {m[1] for d in module.docstrings for m in _FIRST_STEP.finditer(d.text)}:
            found.setdefault(letters, []).append(module.name)
    return found


def few_lines(modules: Iterable[Module]) -> list[Module]:
    """Return the modules with `FEW_LINES` lines of code or fewer; `__init__` is as it has to be."""
    return [m for m in modules if m.code <= FEW_LINES and m.file.name != "__init__.py"]


def rows(modules: Sequence[Module], entries: Sequence[str]) -> dict[str, str]:
    """Return the measures of a package by name.

    Args:
        modules: all of them.
        entries: at its top level.
    """
    lines = sum(module.lines for module in modules)
    code = sum(module.code for module in modules)
    every = [docstring for module in modules for docstring in module.docstrings]
    kinds = Counter(docstring.kind for docstring in every)
    forbidden = Counter(docstring.kind for docstring in every if docstring.is_forbidden)
    return {
        "top-level entries": str(len(entries)),
        "modules": str(len(modules)),
        "lines": f"{lines:,}",
        "code-only lines": f"{code:,}",
        "import lines": _share(sum(module.imports for module in modules), code),
        "comments": _share(sum(module.comments for module in modules), lines),
        **{
            f"{kind} docstrings that open with a wh-word": f"{forbidden[kind]} of {kinds[kind]}"
            for kind in ("module", "class", "function")
        },
        "import circles": str(len(import_circles(modules))),
        f"modules with {FEW_LINES} code lines or fewer": str(len(few_lines(modules))),
        "letters of steps that several modules state": str(
            sum(len(stating) > 1 for stating in step_labels(modules).values())
        ),
        "basenames used twice or more": str(len(repeated_basenames(modules))),
    }


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f}% ({part:,} of {whole:,})"


def main() -> None:
    """Print the table, and the circles and names behind it."""
    directory = Path(sys.argv[1]).resolve() if sys.argv[1:] else PRODUCT
    modules = read_package(directory)
    measured = rows(modules, top_level_entries(directory))
    width = max(map(len, measured))
    print(f"| {'measure':<{width}} | {directory.name} |")
    print(f"| {'-' * width} | --- |")
    for name, value in measured.items():
        print(f"| {name:<{width}} | {value} |")
    for circle in import_circles(modules):
        print(f"circle: {' '.join(circle)}")
    repeated = repeated_basenames(modules).items()
    print("basenames:", ", ".join(f"{name} {count}" for name, count in repeated))


if __name__ == "__main__":
    main()
