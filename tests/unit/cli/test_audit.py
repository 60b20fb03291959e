"""What `audit` refuses before it connects."""

from __future__ import annotations

import pytest

from eosframework.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "audit got APP=None and --sinks=None; expected one of them"),
        (["app.yaml", "--sinks", "report"], "audit got APP='app.yaml' and --sinks='report'"),
        (["--sinks", "report", "--from", "7"], "by receipts; leave --from out"),
        (["--sinks", "report", "--to", "7", "--by", "functions"], "leave --to and --by out"),
        (["--sinks", "report", "--suffix", "fixed"], "leave --suffix out"),
    ],
)
def test_sinks_are_judged_instead_of_a_topology_and_as_a_whole(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["audit", *arguments])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
