"""The state of a worker's tasks on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from eosframework.engine.codegen.compiler import CompiledPart
from eosframework.engine.operators.entries import of_store
from eosframework.engine.operators.store_transaction import Limits
from eosframework.engine.restoration.global_tables import GlobalTables
from eosframework.engine.restoration.restoration import Restoration
from eosframework.engine.restoration.standby import Standby
from eosframework.engine.stores.damaged_place import located
from eosframework.engine.stores.shared_stores import SharedStores
from eosframework.engine.stores.state_ports import StateBackend, StoreIdentity
from eosframework.engine.task.open_state import OpenState
from eosframework.engine.task.task import Task
from eosframework.errors import EntryDamaged
from eosframework.txnid import TransactionalId


@dataclass(eq=False, slots=True)
class LocalState:
    """Opens the stores of tasks and brings them up to date.

    Args:
        backend: opens the stores.
        identities: the stores of each sub-topology that has any.
        partitions: the number of partitions of each sub-topology.
        restoring: reads changelogs.
        shared: gives other threads read access to the stores; None: no access.
        global_tables: the global tables of the process; None: there are none.
        storeless: a backend without stores, for tasks that use global tables only.
        standby: keeps copies of other workers' stores; None: there are none.
        limits: limits on the work that one record may cause; None: the defaults.
        now: returns the seconds since the epoch, for functions that ask for the time.
    """

    backend: StateBackend
    identities: Mapping[str, Sequence[StoreIdentity]]
    partitions: Mapping[str, int]
    restoring: Restoration
    shared: SharedStores | None = None
    global_tables: GlobalTables | None = None
    storeless: StateBackend | None = None
    standby: Standby | None = None
    limits: Limits | None = None
    now: Callable[[], float] = time.time

    @property
    def records_left(self) -> int:
        """The number of changelog offsets to read before every task runs."""
        tables = self.global_tables
        return self.restoring.records_left + (tables.records_left if tables else 0)

    def open(self, compiled: CompiledPart, partition: int) -> OpenState | None:
        """Return the state of a task; None: its sub-topology has none.

        Raises:
            RunError: the directory cannot be used.
        """
        name = compiled.part.name
        identities = self.identities.get(name)
        topics = self.global_tables.topics if self.global_tables else None
        if not identities:
            if self.storeless is None or not compiled.keyed:
                return None
            nothing = self.storeless.open(name, 1, ())
            return OpenState(compiled, partition, nothing, topics, self.limits, now=self.now)
        stores = None if self.standby is None else self.standby.hand_over((name, partition))
        if stores is None:
            stores = self.backend.open(f"{name}-{partition}", self.partitions[name], identities)
        if self.shared is not None:
            stores = self.shared.share(name, partition, stores)
        paced_by = compiled.paced_by.items()
        upstream = {topic: self.partitions.get(timed.writer, 0) for topic, timed in paced_by}
        return OpenState(compiled, partition, stores, topics, self.limits, upstream, now=self.now)

    def turn(self, assigned: Sequence[Task]) -> list[Task]:
        """Restore assigned tasks for a slice of time, and return those that can run."""
        stored = [task for task in assigned if task.stores and task.stores.changelogs]
        self.restoring.turn(stored)
        ready = [t for t in assigned if t not in stored or self.restoring.is_done(t)]
        if self.global_tables is not None and not self.global_tables.turn():
            ready = [task for task in ready if task.stores is None]
        if self.shared is not None:
            for task in ready:
                self.shared.mark_up_to_date(task.identity.sub_topology, task.identity.partition)
        self.restoring.let_go(ready)
        return ready

    def renew_tables(self) -> None:
        """Read the global tables again: a topic of theirs was created again."""
        if self.global_tables is not None:
            self.global_tables.renew()

    def is_waiting(self, task: Task) -> bool:
        """Return whether a task must not look rows up, because global tables are read again."""
        tables = self.global_tables
        return tables is not None and not tables.is_complete and task.stores is not None

    def follow(self, tasks: Collection[TransactionalId], *, busy: bool) -> None:
        """Advance the standby copies, if any.

        Args:
            tasks: the tasks of this worker.
            busy: they have records to run.
        """
        if self.standby is not None:
            owned = {(task.sub_topology, task.partition) for task in tasks}
            self.standby.turn(owned, busy=busy or self.records_left > 0)

    def located(self, error: EntryDamaged) -> EntryDamaged:
        """Return an error with the place of its entry, if a short search finds it."""
        tables = self.global_tables
        counts = {} if tables is None else dict(tables.partitions)
        for part, identities in self.identities.items():
            if any(of_store(identity.name).text == error.holder for identity in identities):
                counts[error.topic or ""] = self.partitions[part]
        count = counts.get(error.topic or "")
        return error if count is None else located(error, self.restoring.changelogs, count)

    def close(self) -> None:
        """Close everything; the tasks have been closed."""
        self.restoring.close()
        if self.standby is not None:
            self.standby.close()
        if self.global_tables is not None:
            self.global_tables.close()
        self.backend.close()
