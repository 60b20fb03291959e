"""Python workers that Spark reuses: little is left for it to do between tasks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from eosframework.spark.executor.functions import forget_archives


def test_modules_of_an_archive_are_found_after_its_finder_was_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = str(tmp_path / "archive.zip")
    with ZipFile(archive, "w") as file:
        for name in ("eos_archived_one", "eos_archived_two"):
            file.writestr(f"{name}.py", f"NAME = {name!r}")
    monkeypatch.syspath_prepend(archive)
    for name in ("eos_archived_one", "eos_archived_two"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    assert importlib.import_module("eos_archived_one").NAME == "eos_archived_one"
    assert isinstance(sys.path_importer_cache[archive], zipimporter)
    forget_archives()

    finders = sys.path_importer_cache.values()
    assert not any(isinstance(finder, zipimporter) for finder in finders)
    assert importlib.import_module("eos_archived_two").NAME == "eos_archived_two"
