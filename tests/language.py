"""Words of a private language, which a reader of Kafka's documentation would have to translate.

`python -m tests.language` prints the table for `tests/unit/test_language.py`, and with `--places`
each place with the word to write instead; arguments name files or directories to look at.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.house import PRODUCT, REPOSITORY, comment_texts

WORDS = {
    r"persisters?|persisting": "table writer, table sink",
    r"carrying|carries|carry|carried": "write, copy, contain",
    r"relaying": "outbox relay",
    r"letters?": "dead letter",
    r"second chances?": "retry",
    r"registry topics?|topic registry": "control topic",
    r"own topics?": "internal topics",
    r"bundles?": "producer group",
    r"suspicions?": "suspect, straggler detection",
    r"behind": "after, from, past; the next offset",
    r"go(?:es)? on|going on|went on|gone on": "continue, resume",
    r"has it now|who has it": "owner, successor",
    r"(?:is|are|was|were|be) away": "unavailable",
    r"mends?|mended|mending": "fix",
    r"tells?|told|telling": "report, log, notify, show",
    r"hears? of|heard of": "report, learn",
    r"nobody|somebody|whoever": "the actor's name",
    r"beside": "alongside, next to, compared with",
    r"narrowing|halving": "bisect",
    r"time of the stream": "stream time",
    r"what there is|which there is": "the thing's name",
}
"""The glossary's "not" words, as regular expressions of whole words, with what to write instead.
A space stands for any white space."""

ALLOWED = {
    r"dead[-\s]+letters?": "the field's term",
    r"(?:lower|upper)-?case letters?": "of an alphabet",
    r"(?:ASCII|small|capital) letters?": "of an alphabet",
    r"letters?(?:,| and| or) digits?": "of an alphabet",
    r"(?:falls?|fell|falling|fallen|lags?|lagging) behind": "English for lag",
    r"behind (?:a|an|the) (?:\w+ )?(?:proxy|proxies|load balancer|firewall|NAT)": "of a network",
    r"carr(?:y|ies|ied|ying) (?:a|an|the|its|this|these|\w+) headers?": "Kafka's records do",
    r"(?:certificate|CA) bundles?": "the field's term",
    r"tells? (?:\w+ ){1,3}apart": "English for distinguish",
}
"""Phrases in which such a word is the field's own or plain English, each with the reason."""

_SEARCH = re.compile(
    r"\b(?:(?P<allowed>{})|(?P<word>{}))\b".format(
        "|".join(ALLOWED).replace(" ", r"\s+"), "|".join(WORDS).replace(" ", r"\s+")
    ),
    re.IGNORECASE,
)
_LITERALS = re.compile(r"`[^`\n]*`|\]\([^)\s]*\)|tests/\S*")
"""Code in a line, targets of links and places of tests: literal names, which follow the code."""

_HELP = ("help", "short_help", "epilog", "description")
"""Keyword arguments that users read as a command's or a setting's description."""


@dataclass(frozen=True)
class Place:
    """One private word.

    Args:
        file: in which it stands.
        line: its number, from 1.
        word: as it stands there.
    """

    file: Path
    line: int
    word: str

    @property
    def instead(self) -> str:
        """What to write instead of the word."""
        words = (use for word, use in WORDS.items() if _pattern(word).fullmatch(self.word))
        return next(words)

    @property
    def entry(self) -> str:
        """The top-level entry of `eosframework/` that the file belongs to, or the page."""
        if self.file.suffix == ".md" or not self.file.is_relative_to(PRODUCT):
            return str(self.file.relative_to(REPOSITORY))
        return self.file.relative_to(PRODUCT).parts[0].removesuffix(".py")


@cache
def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(word.replace(" ", r"\s+"), re.IGNORECASE)


def pages() -> list[Path]:
    """Return the pages of documentation."""
    folders = [REPOSITORY / name for name in ("docs", "docker", "examples")]
    nested = [page for folder in folders for page in folder.rglob("*.md")]
    return sorted([*REPOSITORY.glob("*.md"), *nested])


def private_words(files: Iterable[Path]) -> list[Place]:
    """Return the private words of pages and modules, in their order.

    In a page all text counts; in a module docstrings, comments and texts of help. Code between
    backticks does not.
    """
    return [place for file in files for place in _places(file)]


def _places(file: Path) -> Iterator[Place]:
    text = file.read_text(encoding="utf-8")
    if not any(match["word"] for match in _SEARCH.finditer(text)):
        return
    for start, prose in [(1, text)] if file.suffix == ".md" else sorted(_prose(text)):
        plain = _LITERALS.sub(lambda match: " " * len(match[0]), prose)
        for match in _SEARCH.finditer(plain):
            if match["word"]:
                yield Place(file, start + plain.count("\n", 0, match.start()), match["word"])


def _prose(text: str) -> Iterator[tuple[int, str]]:
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(docstring), lineno=line)):
                yield line, docstring
            case ast.keyword(arg=str(name), value=value) if name in _HELP:
                for part in ast.walk(value):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.lineno, part.value
    yield from comment_texts(text, nodes)


def all_files() -> list[Path]:
    """Return the files that the table counts."""
    return [*pages(), *sorted(PRODUCT.rglob("*.py"))]


def main() -> None:
    """Print the table of counts, or the places."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--places"]
    roots = [Path(argument).resolve() for argument in arguments]
    files = [
        file
        for root in roots
        for file in ([root] if root.is_file() else sorted(root.rglob("*.*")))
        if file.suffix in {".md", ".py"}
    ]
    found = private_words(files if roots else all_files())
    if "--places" in sys.argv:
        for place in found:
            where = f"{place.file.relative_to(REPOSITORY)}:{place.line}"
            print(f"{where}: {' '.join(place.word.split())!r}: {place.instead}")
        return
    print("OFFENDERS = {")
    for entry, count in sorted(Counter(place.entry for place in found).items()):
        print(f'    "{entry}": {count},')
    print("}")


if __name__ == "__main__":
    main()
