"""The models in docs/model: every rule that can be taken out is taken out by a search."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

MODELS = Path(__file__).parents[2] / "docs" / "model"

SWITCH = re.compile(r"#\s*(?:ifn?def|if|elif)\b.*")
RULE = re.compile(r"\bWITH(?:OUT)?_[A-Z_]+\b")
REDUNDANT = {"WITHOUT_CUTOVER_ID"}
"""Rules that others cover; docs/model/README.md says which."""


def _check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("model_check", MODELS / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PROTOCOLS = (
    "cycle.pml",
    "ownership.pml",
    "cutover.pml",
    "watermarks.pml",
    "together.pml",
    "once.pml",
)


@pytest.mark.parametrize("model", PROTOCOLS)
def test_each_rule_of_a_model_is_taken_out_by_a_search_that_finds_an_anomaly(model: str) -> None:
    texts = [(MODELS / model).read_text()]
    if model == "cycle.pml":
        texts.append((MODELS / "broker.pml").read_text())
    rules = {rule for text in texts for line in SWITCH.findall(text) for rule in RULE.findall(line)}

    taken_out = {
        switch
        for case in _check().CASES
        if case.model == model and case.anomaly is not None
        for switch in case.switches
    }

    # With the group's check; and rules of `together` that others cover. All on purpose.
    searched_in_vain = {"WITHOUT_RECORD", "WITHOUT_DECISION_READ_FIRST", "WITHOUT_STABLE_READS"}
    assert rules, "the model has switches"
    assert rules - taken_out - REDUNDANT - searched_in_vain == set()


def test_each_complete_protocol_is_searched() -> None:
    whole = {
        case.model
        for case in _check().CASES
        if case.anomaly is None and not any(RULE.match(switch) for switch in case.switches)
    }

    assert whole == set(PROTOCOLS)
