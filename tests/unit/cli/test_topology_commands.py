from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest

from eosframework.cli import main

YAML = """
application: a
sources: {s: {topic: s}}
streams: {x: {from: s, to: t}}
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(YAML)
    Path("warned.yaml").write_text(YAML.replace("to: t", "to: s"))
    Path("bad.yaml").write_text(YAML.replace("from: s", "from: r"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    output = capsys.readouterr()
    return int(stopped.value.code or 0), output.out, output.err


@pytest.mark.parametrize(("file", "code"), [("good", 0), ("warned", 0), ("bad", 1)])
def test_lint_exits_with_1_only_for_errors(
    file: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "lint", f"{file}.yaml")[0] == code


def test_lint_prints_file_line_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "lint", "bad.yaml")
    assert "bad.yaml:4:21: unknown-stream: stream 'x' reads 'r'" in out
    assert err == "bad.yaml: 1 errors, 1 warnings\n"


def test_lint_prints_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "lint", "bad.yaml", "--json")
    report = orjson.loads(out)
    assert (code, report["errors"], report["warnings"]) == (1, 1, 1)
    (error,) = [finding for finding in report["findings"] if finding["severity"] == "error"]
    assert error.items() >= {"file": "bad.yaml", "line": 4, "column": 21}.items()
    assert error["rule"] == "unknown-stream"


def test_describe_writes_json_text_and_mermaid(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "describe", "good.yaml", "--json")
    assert code == 0
    assert orjson.loads(out)["sub_topologies"][0]["transactional_id"] == "a:worker.INSTANCE:0"
    assert "writing as a:worker.INSTANCE:0" in run(capsys, "describe", "good.yaml")[1]
    each = run(capsys, "describe", "good.yaml", "--set", "worker.ids=partition")
    assert "writing as a:x:{partition}" in each[1]
    assert run(capsys, "describe", "good.yaml", "--format", "mermaid")[1].startswith("flowchart")


@pytest.mark.parametrize("command", ["lint", "describe"])
def test_a_file_that_is_missing_is_one_line(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, command, "god.yaml")
    assert (code, out) == (2, "")
    assert err == ("error: topology file 'god.yaml' does not exist; did you mean 'good.yaml'?\n")


def test_describe_refuses_a_topology_with_errors(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "describe", "bad.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("error: bad.yaml:4:21: unknown-stream")


def test_schemas_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert "streams" in orjson.loads(run(capsys, "explain", "schema")[1])["properties"]
    assert "kafka" in orjson.loads(run(capsys, "explain", "schema", "--settings")[1])["properties"]


def test_every_setting_has_a_variable_and_a_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    rows = orjson.loads(run(capsys, "explain", "settings", "--json")[1])["settings"]
    variables = {row["name"]: row["variable"] for row in rows}
    assert variables["worker.commit_interval_seconds"] == "EOS_WORKER__COMMIT_INTERVAL_SECONDS"
    assert all(row["purpose"] for row in rows)
    text = run(capsys, "explain", "settings")[1]
    assert all(row["name"] in text for row in rows)
