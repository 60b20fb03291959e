from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

EXAMPLES = ("app", "delays", "flights", "models", "payments", "transfers")


@pytest.fixture(autouse=True)
def restored_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test import the examples anew."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in EXAMPLES:
        sys.modules.pop(name, None)
