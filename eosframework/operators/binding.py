"""Binding of the keyed nodes of a topology to the operators of one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eosframework.operators import folds
from eosframework.operators.entries import EntryFormat, of_store
from eosframework.operators.expiry import Lifetime, StreamTime, open_expiring
from eosframework.operators.folds import Fold, folding, owning
from eosframework.operators.handlers import Handler, Timers
from eosframework.operators.store_transaction import (
    CommittedStore,
    Journal,
    Limits,
    StoreTransaction,
    open_transaction,
)
from eosframework.operators.windows.closing import Alarms, SpansFormat, WindowFormat, WindowOperator
from eosframework.operators.windows.key_windows import SessionWindows, SlidingWindows
from eosframework.operators.windows.time_windows import AlignedWindows, Deduplication
from eosframework.serialization.serdes import STRING
from eosframework.topology.graph.graph import Aggregate, Emit, FoldKind, Processor, Store
from eosframework.topology.graph.node_kinds import with_value
from eosframework.topology.spec.keyed_spec import Window, WindowKind


def format_of(store: Store, partition: int | None = None) -> EntryFormat:
    """Return the format of a store's entries.

    Args:
        store: a store of the graph.
        partition: of the task, for errors; None: any.
    """
    upgrade = None if store.upgrade is None else store.upgrade.call
    kind = EntryFormat
    if store.window is not None:
        own = store.window.kind in (WindowKind.SLIDING, WindowKind.SESSION)
        kind = SpansFormat if own else WindowFormat
    holder = of_store(store.name, store.changelog, partition)
    return kind(store.name, store.value, store.version, upgrade, holder)


def transaction_of(
    store: Store, partition: int, committed: CommittedStore, journal: Journal, time: StreamTime
) -> StoreTransaction:
    """Return the transaction of a store in one task.

    Args:
        store: a store of the graph.
        partition: of the task.
        committed: its content after the last commit.
        journal: the journal of the task.
        time: the stream time of the task; used where entries expire.
    """
    if store.ttl_ms is None:
        return open_transaction(format_of(store, partition), committed, journal)
    form = format_of(store, partition)
    return open_expiring(form, committed, journal, Lifetime(store.ttl_ms, time))


def bind(node: Aggregate, store: StoreTransaction, alarms: Alarms, limits: Limits) -> Any:
    """Return the update function or operator of an aggregate in one task.

    Args:
        node: an aggregate of the graph.
        store: the transaction of its store.
        alarms: the alarms of the task.
        limits: limits on the windows of a key.
    """
    window = node.store.window
    if window is not None:
        return windowed(node, window, store, alarms, limits)
    return folding(store, fold_of(node))


def handler(node: Processor, stores: Mapping[str, StoreTransaction], alarms: Alarms) -> Handler:
    """Return the operator of a `process` step in one task.

    Args:
        node: a `process` step of the graph.
        stores: the transactions of the task's stores, by name.
        alarms: the alarms of the task.
    """
    timers = None if node.timers is None else Timers(stores[node.timers.name], alarms.closes)
    return Handler(
        node.function.call,
        None if node.on_timer is None else node.on_timer.call,
        {name: (stores[own.name], own.key) for name, own in node.stores.items()},
        timers,
        node.key,
    )


def windowed(
    node: Aggregate, window: Window, store: StoreTransaction, alarms: Alarms, limits: Limits
) -> WindowOperator:
    """Return the operator of a node with a window; see `bind`."""
    alarm = alarms.closes if node.emit is Emit.CLOSE else alarms.ends
    if window.kind is WindowKind.LAST:
        by = node.functions.get("by")
        return Deduplication(store, window, alarm, None if by is None else by.call)
    fold, updates = fold_of(node), node.emit is Emit.EACH
    if window.kind in (WindowKind.HOPPING, WindowKind.SLIDING) and fold is not folds.COUNT:
        fold = owning(fold)
    if window.kind in (WindowKind.TUMBLING, WindowKind.HOPPING):
        return AlignedWindows(store, window, alarm, fold, shows_updates=updates)
    kind = SlidingWindows if window.kind is WindowKind.SLIDING else SessionWindows
    form = store.form
    assert isinstance(form, SpansFormat), "format_of gives it to these kinds"
    return kind(store, window, alarm, fold, form, limits, shows_updates=updates)


def fold_of(node: Aggregate) -> Fold:
    """Return the fold that a node declares."""
    calls = {name: with_value(function) for name, function in node.functions.items()}
    match node.fold:
        case FoldKind.COUNT:
            return folds.COUNT
        case FoldKind.SUM:
            return folds.total(calls["of"])
        case FoldKind.MIN:
            return folds.smallest(calls["of"], of_texts=node.store.value.name == STRING.name)
        case FoldKind.MAX:
            return folds.greatest(calls["of"], of_texts=node.store.value.name == STRING.name)
        case FoldKind.REDUCE:
            return folds.reduction(calls["add"])
        case FoldKind.AGGREGATE:
            return folds.aggregation(calls["initial"], calls["add"], calls.get("merge"))
        case FoldKind.DEDUPLICATE:
            raise AssertionError("it remembers records and folds nothing")
