"""Every block of code in the documentation is one that the current version understands.

Whole programs and topologies run in tests of their own. Here are the parts of them: commands have
arguments that the command line takes, settings exist, Python compiles, imports names that there are
and calls them with arguments that they have, and YAML parses.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from eosframework import cli
from eosframework.cli.explain import list_settings
from eosframework.topology.loader import read_yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    if not {"adr", "benchmarks"}.intersection(page.parts) and page.name not in ("api.md", "cli.md")
)
"""All but records of the past, and two pages that are generated."""

FENCE = re.compile(r"^( *)```([\w-]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(eosframework [^`]+)`")
SHELL = ("", "sh", "text")
FOREIGN = {"scrape_configs", "services", "apiVersion"}
"""Keys of files of other programs."""


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text[:60]!r}"


def blocks(*languages: str) -> list[Block]:
    return [
        Block(page, language, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for page in PAGES
        for indent, language, text in FENCE.findall(page.read_text(encoding="utf-8"))
        if language in languages
    ]


def commands() -> Iterator[Block]:
    """The commands of blocks and of running text, without what a shell does with them."""
    for block in blocks(*SHELL):
        for line in block.text.replace("\\\n", " ").splitlines():
            if found := re.match(r"\s*(?:\$ )?(?:\w+=\S+ )*(eosframework .*)", line):
                yield Block(block.page, block.language, found[1])
    for page in PAGES:
        for command in INLINE.findall(page.read_text(encoding="utf-8")):
            yield Block(page, "", command)


def parse(root: Any, text: str) -> None:
    """Parse a command as the command line does, and run nothing.

    Raises:
        Exception: of the command line, for words that it does not take.
    """
    words = shlex.split(re.split(r"\s(?:&|\||>|2>|;|&&)", text)[0], comments=True)[1:]
    command, context = root, root.make_context("eosframework", words)
    while hasattr(command, "resolve_command") and (
        left := [*context._protected_args, *context.args]
    ):
        name, command, left = command.resolve_command(context, left)
        context = command.make_context(name, left, parent=context)


def is_incomplete(error: Exception) -> bool:
    """True if a text names a command without what it must have, which is no mistake."""
    return type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError")


def test_every_command_is_one_that_the_command_line_takes() -> None:
    cli._register([])
    root: Any = typer.main.get_command(cli.app)
    found = [command for command in commands() if "…" not in command.text]
    assert len(found) > 200
    refused: list[str] = []
    for command in found:
        try:
            parse(root, command.text)
        except Exception as error:
            if not is_incomplete(error):
                refused.append(f"{command}: {getattr(error, 'message', error)}")
    assert not refused, "\n".join(refused)


def test_every_setting_exists() -> None:
    known = {str(entry["name"]) for entry in list_settings()}
    sections = "|".join(sorted({name.split(".")[0] for name in known}))
    setting = re.compile(rf"(?:`|--set '?)((?:{sections})\.\w+)[`=]")
    named = [(page, n) for page in PAGES for n in setting.findall(page.read_text(encoding="utf-8"))]
    assert len(named) > 200
    # Functions of others have such names, and two pages name a setting that was removed.
    strange = {f"{page.name}: {name}" for page, name in named if name not in known}
    assert strange == {
        "faust.md: state.get",
        "quix-streams.md: state.get",
        "quix-streams.md: state.set",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_compiles_and_what_it_imports_and_calls_is_there(page: Path) -> None:
    wrong = [
        f"{block}: {mistake}"
        for block in blocks("python")
        if block.page == page
        for mistake in mistakes_of(block.text)
    ]
    assert not wrong, "\n".join(wrong)


def mistakes_of(program: str) -> Iterator[str]:
    """Names that the framework does not have, and arguments that its functions do not take."""
    tree = ast.parse(program)
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eosframework"):
            module = import_module(node.module or "")
            for alias in node.names:
                if not hasattr(module, alias.name):
                    yield f"{node.module} has no {alias.name}"
                names[alias.asname or alias.name] = getattr(module, alias.name, None)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and names.get(node.func.id)
        ):
            yield from _unknown_arguments(names[node.func.id], node)


def _unknown_arguments(function: Any, call: ast.Call) -> Iterator[str]:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = {parameter.name for parameter in parameters}
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in known:
            yield f"{ast.unparse(call.func)} has no argument {keyword.arg}"


def topology_of(text: str) -> dict[str, Any] | None:
    """Complete a part of a topology: of a stream, its sources or its streams; None: settings."""
    data: Any = yaml.safe_load(text)
    if isinstance(data, list):
        data = {"steps": data, "to": "out"}
    if "to" in data:
        data = {"streams": {"part": {"from": "given", **data}}}
    if not data.keys() & {"application", "sources", "streams"}:
        return None
    sources = {"given": {"topic": "given", "key": "string", "value": "json"}}
    given = [stream["from"] for stream in data.get("streams", {}).values()]
    read = {name for one in given for name in (one if isinstance(one, list) else [one])}
    named = {name: {**sources["given"], "topic": name} for name in read if isinstance(name, str)}
    streams = {"read": {"from": next(iter(data.get("sources", sources))), "to": "out"}}
    whole = {"application": "part", "sources": named, "streams": streams, **data}
    return {**whole, "sources": {**named, **data.get("sources", sources)}}


def test_yaml_is_a_topology_or_a_part_of_one_or_settings() -> None:
    sections = {str(entry["name"]).split(".")[0] for entry in list_settings()}
    found = [
        block for block in blocks("yaml") if not FOREIGN & {*map(str, yaml.safe_load(block.text))}
    ]
    assert len(found) > 15
    for block in found:
        topology = topology_of(block.text)
        if topology is None:
            assert yaml.safe_load(block.text).keys() <= sections, block
        else:
            text = yaml.safe_dump(topology, sort_keys=False)
            assert not read_yaml(text, str(block)).problems, block


def test_an_option_an_import_and_an_argument_that_are_no_more_are_found() -> None:
    cli._register([])
    root: Any = typer.main.get_command(cli.app)
    with pytest.raises(Exception, match="No such option: --sure"):
        parse(root, "eosframework reset app.yaml --sure")
    program = "from eosframework import Topology, Gone\nTopology(nome='a')"
    assert [*mistakes_of(program)] == ["eosframework has no Gone", "Topology has no argument nome"]


def test_a_key_that_is_no_more_is_found_in_a_part_of_a_topology() -> None:
    topology = topology_of("- count: {windows: 1h}")
    assert read_yaml(yaml.safe_dump(topology, sort_keys=False), "part").problems
