"""Stores of a task for tests: their identities, and what is in them."""

from __future__ import annotations

from eosframework.engine.operators.store_transaction import CommittedStore
from eosframework.engine.stores.state_ports import StoreIdentity

SMALL_CACHE_BYTES = 16 * 2**20

TASK = "late-0"

COUNTS = StoreIdentity("counts", changelog="id-of-counts", schema_version=1)
NAMES = StoreIdentity("names", changelog="id-of-names", schema_version=1)


def content(store: CommittedStore) -> dict[bytes, bytes]:
    """Return everything that a store holds."""
    return dict(store.scan())
