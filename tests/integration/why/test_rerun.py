"""Outputs of random topologies run again from the state that changelogs say they met.

The re-run must give the record that stands in the log, and must not if the state lacks the last
record before that transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from eosframework.operations.why.state_history import Changelog, StateHistory, StoreContent
from tests.conftest import KafkaService
from tests.support.applications.random_topologies import KINDS, RandomApplication
from tests.support.applications.receipted import Receipted

MODULE = """\
from tests.support.applications.random_topologies import RandomApplication

app = RandomApplication({name!r}, {kind!r}, {seed}).topology
"""
ASKED = 8
"""Outputs of each application that run again; with emissions at commits there may be fewer."""

FEWEST = 2

Build = Callable[[str, int], Receipted]


@pytest.fixture
def build(kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path) -> Build:
    """Return what runs a random application over random records, in several runs."""

    def make(kind: str, seed: int) -> Receipted:
        name = unique_name("why")
        drawn = RandomApplication(name, kind, seed)
        text = MODULE.format(name=name, kind=kind, seed=seed)
        sources = [f"{name}.left", f"{name}.right"]
        made = Receipted(kafka.bootstrap_servers, tmp_path / name, text, sources)
        for _ in range(2):
            made.feed(drawn.records(60))
            made.run()
        return made

    return make


def same_and_other(application: Receipted, seed: int) -> tuple[int, list[str]]:
    """Run some outputs again; return how many are the same, and the others with their reasons."""
    draw = Random(seed)
    topics = [t for t in application.graph.sink_topics if application.places(t)]
    places = [place for topic in topics for place in application.places(topic)]
    asked = draw.sample(places, min(ASKED, len(places)))
    found = list(application.causes(asked))
    wrong = [
        f"{cause.found.place}: {cause.found.missing or cause.found.rerun}"
        for cause in found
        if cause.found.rerun is None or not cause.found.rerun.is_same
    ]
    return len(found) - len(wrong), wrong


def lack_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each store lack the last changelog record before the transaction."""
    content_of = StateHistory._content

    def content(self: StateHistory, changelog: Changelog, boundary: int) -> StoreContent:
        found = content_of(self, changelog, boundary)
        return content_of(self, changelog, max(found.last.values(), default=boundary))

    monkeypatch.setattr(StateHistory, "_content", content)


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind == "windows" else pytest.param(kind, marks=pytest.mark.exhaustive)
        for kind in KINDS
    ],
)
def test_the_state_of_the_changelogs_gives_the_record_in_the_log(build: Build, kind: str) -> None:
    application = build(kind, 1)
    same, wrong = same_and_other(application, 1)
    assert wrong == []
    assert same >= FEWEST


def test_a_state_that_lacks_one_record_gives_other_records(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = build("sums", 2)
    assert same_and_other(application, 2)[1] == []
    lack_the_last_record(monkeypatch)
    same, wrong = same_and_other(application, 2)
    assert wrong, f"{same} outputs were the same"


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3, 15))
@pytest.mark.parametrize("kind", KINDS)
def test_the_state_gives_the_record_whatever_the_topology(
    build: Build, kind: str, seed: int
) -> None:
    same, wrong = same_and_other(build(kind, seed), seed)
    assert wrong == []
    assert same >= FEWEST
