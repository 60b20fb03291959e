"""The files of other projects are those of the registry, and the site serves them."""

from __future__ import annotations

import hashlib

from eosframework.operations.console.site import asset_address
from tests.support.documents.vendored import FOLDER, VENDORED


def test_each_vendored_file_has_the_digest_of_its_version() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(VENDORED)
    for name, file in VENDORED.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == file.sha256, name


def test_an_address_changes_with_the_content() -> None:
    address = asset_address("vendored/elk-worker.min.js")
    assert address.startswith("/assets/vendored/elk-worker.min.js?v=")
    assert VENDORED["elk-worker.min.js"].sha256.startswith(address.partition("=")[2])
