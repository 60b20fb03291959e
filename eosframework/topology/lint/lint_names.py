"""Lint rules for the names of what is kept (docs/concepts/names.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from string import ascii_lowercase

from eosframework.topology.lowering.lowering import Lowered
from eosframework.topology.spec.kept_names import KeptName, Kind, Option
from eosframework.topology.spec.loaded import Finding, Fix, LoadedApp, Severity

AMBIGUOUS = "ambiguous-name"


def ambiguous_names(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return the names that several steps would have; the topology has no other errors."""
    named: dict[tuple[Kind, str], list[KeptName]] = {}
    for kept in lowered.kept:
        named.setdefault((kept.kind, kept.name), []).append(kept)
    twice = {key: found for key, found in named.items() if len(found) > 1}
    topics = {name for kind, name in twice if kind is Kind.REPARTITION}
    taken = {name for _, name in named}
    for (kind, _), found in twice.items():
        derived = [k for k in found if not k.is_stated and k.base not in topics]
        for kept, proposal in zip(derived, _proposals(derived, taken), strict=True):
            yield _ambiguous(app, kept, [k for k in found if k is not kept], proposal)
        if kind is Kind.STORE and all(kept.is_stated for kept in found):
            yield from _duplicates(app, found)


def derived_names(app: LoadedApp, lowered: Lowered) -> Iterator[Finding]:
    """Return all names that are not stated; the topology has no errors."""
    for kept in lowered.kept:
        if not kept.is_stated and not kept.is_anchored:
            yield _finding(
                app,
                kept,
                kept.name,
                "derived-name",
                f"{kept.kind} {kept.name!r} has a derived name, which changes if the steps before "
                f"it do. State it: {kept.line(kept.name)}",
                Severity.WARNING,
            )


def _ambiguous(
    app: LoadedApp, kept: KeptName, others: Sequence[KeptName], proposal: str
) -> Finding:
    where = ", ".join(f"{other.place}" for other in others)
    return _finding(
        app,
        kept,
        proposal,
        AMBIGUOUS,
        f"{kept.kind} {kept.name!r} would be that of this step and of {where}: an edit could give "
        f"one what belongs to the other. Name each of them, this one for example "
        f"{kept.line(proposal)}; if one has run, `eosframework plan` names its line",
        Severity.ERROR,
    )


def _finding(
    app: LoadedApp, kept: KeptName, value: str, rule: str, message: str, severity: Severity
) -> Finding:
    option = "" if kept.option is Option.NAMED else str(kept.option)
    fix = Fix(kept.path, option, value.removesuffix(kept.suffix))
    return Finding(app.source_map.find(kept.path), rule, message, severity, fix)


def _duplicates(app: LoadedApp, found: Sequence[KeptName]) -> Iterator[Finding]:
    for kept in found[1:]:
        yield app.finding(
            kept.path,
            "duplicate-store",
            f"store {kept.name!r} is declared twice (line {found[0].place.line}); each step that "
            f"keeps something needs one of its own. Give this one another name: "
            f"{kept.option}: NAME",
        )


def _proposals(derived: Sequence[KeptName], taken: Set[str]) -> list[str]:
    """Return a name for each: with the first function that differs, or with an own end, `.a`."""
    starts = [kept.name.removesuffix(kept.suffix) for kept in derived]
    for words in zip(*(kept.words for kept in derived), strict=False):
        names = [f"{start}.{word}" for start, word in zip(starts, words, strict=True)]
        if len({*words}) == len(words) > 1 and taken.isdisjoint(names):
            return _with_suffixes(derived, names)
    ends = (ascii_lowercase[i % 26] * (1 + i // 26) for i in range(len(derived)))
    names = [f"{start}.{end}" for start, end in zip(starts, ends, strict=True)]
    return _with_suffixes(derived, names)


def _with_suffixes(derived: Sequence[KeptName], names: Sequence[str]) -> list[str]:
    return [f"{name}{kept.suffix}" for kept, name in zip(derived, names, strict=True)]
