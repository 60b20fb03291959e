"""Options that several commands share: settings, and the question before a change."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from eosframework import cli
from eosframework.cli import main
from eosframework.cli.options import SettingsOptions, confirmed, parse_assignments
from eosframework.config import LogFormat
from eosframework.errors import ConfigurationError


@pytest.mark.parametrize(
    ("answer", "agreed"),
    [("y\n", True), ("YES \n", True), ("\n", False), ("n\n", False), ("orders.yaml\n", False)],
)
def test_only_a_yes_is_an_agreement(
    answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert confirmed() is agreed
    asked = capsys.readouterr()
    assert (asked.out, "[y/N]" in asked.err) == ("", True)


@pytest.mark.parametrize("stdin", [io.StringIO(), None], ids=["ended", "closed"])
def test_without_an_answer_the_error_names_the_option_that_skips_the_question(
    stdin: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(ConfigurationError, match="--yes"):
        confirmed()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    output = capsys.readouterr()
    return int(stopped.value.code or 0), output.out, output.err


def test_the_flag_for_brokers_overrides_every_other_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EOS_KAFKA__BOOTSTRAP_SERVERS", "environment:1")
    assigned = ["kafka.bootstrap_servers=assigned:1", "worker.instance=w"]
    options = SettingsOptions(None, assigned, "[::1]:9092,flag:1", None)
    assert options.load().kafka.bootstrap_servers == "[::1]:9092,flag:1"
    assert options.load().worker.instance == "w"
    assert (
        SettingsOptions(None, assigned, None, None).load().kafka.bootstrap_servers == "assigned:1"
    )
    with pytest.raises(ConfigurationError, match="--bootstrap-server is empty; expected HOST:PORT"):
        SettingsOptions(None, None, " ", None).load()


def test_the_form_of_log_events_has_an_option_at_every_command() -> None:
    options = SettingsOptions(None, ["log.format=json"], None, "console")
    assert options.load().log.format is LogFormat.CONSOLE
    with pytest.raises(ConfigurationError, match=r"log\.format"):
        SettingsOptions(None, None, None, "pretty").load()


@pytest.mark.parametrize(
    "command",
    [
        "run-worker",
        "describe",
        "plan",
        "apply",
        "status",
        "positions show",
        "positions set",
        "reset",
        "state get",
        "state scan",
        "dead-letters list",
        "dead-letters show",
        "dead-letters replay",
        "ids release",
        "txn list",
        "txn describe",
        "txn trace",
        "txn hanging",
        "txn abort",
        "txn commit",
        "doctor",
        "audit",
        "backfill run",
        "backfill status",
        "backfill cutover",
        "backfill diff",
        "relay-outbox",
        "relay-outbox plan",
        "relay-outbox reconcile",
    ],
)
def test_every_command_that_reads_settings_has_the_options_for_them(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, *command.split(), "--help")
    assert code == 0
    for option in ("--config FILE", "--set KEY=VALUE", "--bootstrap-server HOST:PORT"):
        assert option in out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nope", "No such command 'nope'; see `eosframework --help`"),
        ("plan --nope", "No such option: --nope; see `eosframework plan --help`"),
        ("plan", "Missing argument 'APP'; see `eosframework plan --help`"),
        ("explain nope", "No such command 'nope'; see `eosframework explain --help`"),
        ("demo flights --kills 0", "Invalid value for '--kills'"),
    ],
)
def test_a_wrong_command_line_is_one_message_and_exit_code_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *line.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("group", ["", "explain", "demo", "txn", "backfill"])
def test_a_group_without_a_command_prints_its_help(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *group.split())
    assert (code, out) == (2, "")
    assert err.startswith("Usage: eosframework ")


def test_the_version_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.strip().count(".") == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete_commands(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The option takes a shell then, and does not look for the one that it is called from.
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "_EOSFRAMEWORK_COMPLETE" in run(capsys, "--show-completion", shell)[1]
    monkeypatch.setenv("_EOSFRAMEWORK_COMPLETE", f"complete_{shell}")
    words = "eosframework explain err"
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", "2")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", words)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert "errors" in run(capsys)[1]


def test_a_setting_of_a_topic_that_is_no_assignment_names_its_option() -> None:
    assert parse_assignments(["cleanup.policy=compact"], example="a=b", option="--setting") == {
        "cleanup.policy": "compact"
    }
    with pytest.raises(ConfigurationError, match="--setting 'compact' is not KEY=VALUE"):
        parse_assignments(["compact"], example="a=b", option="--setting")


def commands_of(command: Any, name: str = "eosframework") -> Iterator[tuple[str, Any]]:
    under = getattr(command, "commands", {})
    if not under:
        yield name, command
    for part, each in under.items():
        yield from commands_of(each, f"{name} {part}")


def test_an_option_means_the_same_at_every_command() -> None:
    """But for `--markdown`, which is hidden, and options of one command alone."""
    cli._register([])
    shared = ("--yes", "--dry-run", "--json", "--config", "--bootstrap-server", "--log-format")
    meanings: dict[str, set[str | None]] = {}
    for name, command in commands_of(typer.main.get_command(cli.app)):
        options = {option: p for p in command.params for option in getattr(p, "opts", ())}
        for option in shared:
            if option in options:
                meanings.setdefault(option, set()).add(options[option].help)
        if "--dry-run" in options:
            assert "--yes" in options, name
        if "--config" in options:
            assert {"--set", "--bootstrap-server", "--log-format"} <= options.keys(), name
    assert {option: len(texts) for option, texts in meanings.items()} == dict.fromkeys(shared, 1)
