from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "wordcount"


def test_the_test_in_its_readme_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delitem(sys.modules, "wordcount", raising=False)
    [program] = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(program, names)
    assert names["counts"] == {"to": 2, "be": 2, "or": 1, "not": 1}
    sys.modules.pop("wordcount", None)
