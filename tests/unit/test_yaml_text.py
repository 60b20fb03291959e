"""Texts that would exhaust time, memory or the stack are refused where YAML is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eosframework.config import load_settings
from eosframework.errors import ConfigurationError
from eosframework.serialization.yaml_text import read_plain
from eosframework.topology.loader import read_yaml

LAUGHS = "a0: &a0 [1, 2]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
)
CHAIN = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{x: *a{n - 1}}}\n" for n in range(1, 1500))
HOSTILE = {
    "laughs": (LAUGHS, "more than 100,000 values"),
    "merges": (MERGES, "more than 100,000 values"),
    "chain of aliases": (CHAIN, "deeper than 100 levels"),
    "lists": ("[" * 50_000, "deeper than 100 levels"),
    "maps": ("{a: " * 50_000, "deeper than 100 levels"),
    "blocks": ("\n".join(" " * n + "a:" for n in range(2000)), "deeper than 100 levels"),
    "itself": ("a: &a [*a]", "an alias contains itself"),
    "date": ("a: 2020-13-45", "'2020-13-45' is no timestamp"),
    "digits": ("a: " + "9" * 5000, "is no int"),
    "empty int": ("a: !!int ''", "'' is no int"),
    "bool": ("a: !!bool maybe", "'maybe' is no bool"),
    "time": ("a: !!timestamp soon", "'soon' is no timestamp"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_text_beyond_the_bounds_is_one_finding_with_its_place(name: str) -> None:
    text, message = HOSTILE[name]
    [finding] = read_yaml(text, "app.yaml").problems
    assert message in finding.message
    assert finding.place.line is not None


@pytest.mark.parametrize("name", HOSTILE)
def test_a_config_file_beyond_the_bounds_is_one_error(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HOSTILE[name][0])
    with pytest.raises(ConfigurationError, match=r"config\.yaml:\d+:\d+ is not valid YAML"):
        load_settings(file)


def test_aliases_within_the_bounds_mean_what_they_repeat() -> None:
    text = "a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}\n"
    assert read_plain(text) == yaml.safe_load(text)


@given(st.text(alphabet="ab:-[]{},&*!?<#'\"|>% \n019.~", max_size=60))
def test_any_text_is_read_as_pyyaml_reads_it_or_refused_by_name(text: str) -> None:
    try:
        found = read_plain(text)
    except yaml.YAMLError:
        return
    assert repr(found) == repr(yaml.safe_load(text))
