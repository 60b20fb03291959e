"""What `dead-letters replay` refuses before it asks a cluster."""

from __future__ import annotations

import pytest

from eosframework.cli import main


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--all"),
        (("--all", "--topic", "dead"), "--all"),
        (("--offsets", "dead@7"), "is not a place of dead letters"),
        (("--since", "yesterday"), "ISO 8601"),
    ],
)
def test_a_choice_that_is_none_is_refused(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dead-letters", "replay", "app.yaml", "--yes", *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
