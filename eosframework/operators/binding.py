"""From the keyed nodes of a topology to the operators of one task."""

from __future__ import annotations

from typing import Any

from eosframework.operators import folds
from eosframework.operators.entries import EntryFormat
from eosframework.operators.folds import Fold, folding
from eosframework.operators.session import StoreSession
from eosframework.topology.graph import Aggregate, FoldKind, Store


def format_of(store: Store) -> EntryFormat:
    """Return how the entries of a store are written."""
    upgrade = None if store.upgrade is None else store.upgrade.call
    return EntryFormat(store.name, store.value, store.version, upgrade)


def bind(node: Aggregate, session: StoreSession) -> Any:
    """Return what runs a keyed node in one task.

    Args:
        node: of the graph.
        session: of its store.
    """
    return folding(session, fold_of(node))


def fold_of(node: Aggregate) -> Fold:
    """Return the fold that a node declares."""
    calls = {name: function.call for name, function in node.functions.items()}
    match node.fold:
        case FoldKind.COUNT:
            return folds.COUNT
        case FoldKind.SUM:
            return folds.total(calls["of"])
        case FoldKind.MIN:
            return folds.smallest(calls["of"])
        case FoldKind.MAX:
            return folds.greatest(calls["of"])
        case FoldKind.REDUCE:
            return folds.reduction(calls["add"])
        case FoldKind.AGGREGATE:
            return folds.aggregation(calls["initial"], calls["add"])
