"""Attempts of a backfill's task over a log in memory, with planned faults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from eosframework.config import BackfillSettings, Settings
from eosframework.engine.codegen.compiler import CompiledPart, compile_part
from eosframework.engine.operators.entries import LAYOUT
from eosframework.engine.restoration.local_state import LocalState
from eosframework.engine.restoration.restoration import Restoration
from eosframework.engine.stores.state_ports import StoreIdentity
from eosframework.errors import ClusterUnreachable, EosError
from eosframework.records import TopicPartition
from eosframework.spark.executor.attempt_context import AttemptContext
from eosframework.spark.executor.functions import Attempt
from eosframework.spark.job.job_entry import TaskProgress, task_key
from eosframework.topology.resolve.resolve import resolve
from eosframework.transactions.ports import Message
from eosframework.txnid import TransactionalId
from tests.support.memory.fault_plan import CURRENT, SLOW, Fault, Faults, Killed
from tests.support.memory.fault_plan import KINDS as WORKER_KINDS
from tests.support.memory.faulty_kafka import FaultyKafka, FaultyOutputs, Machine, faulty_changelogs
from tests.support.memory.journal import Found, MemoryJournal
from tests.unit.matrix.judging import number_by_text, seen
from tests.unit.matrix.models import counts as model
from tests.unit.matrix.play import Wrong, compacted
from tests.unit.matrix.scenarios import KEYS, counts

KINDS: Mapping[str, tuple[str, ...]] = {
    **{
        call: kinds
        for call, kinds in WORKER_KINDS.items()
        if call.split(".")[0] in ("outputs", "output", "changelogs", "reading", "stores", "state")
        and call not in ("output.refused", "stores.clear", "stores.next")
    },
    "progress.read": ("ClusterUnreachable", "RunError", "kill"),
    "progress.newest": ("ClusterUnreachable", "RunError"),
    "rows": ("RunError", "kill"),
    "user": ("StateDamaged", "SchemaRegistryUnavailable", "KeyboardInterrupt", SLOW, "kill"),
}
"""By call, what is raised there; see `faults.KINDS`."""

REGISTRY = "registry"
IN = TopicPartition("in", 0)


class FaultyJournal(MemoryJournal):
    """A journal whose readings fail."""

    def __init__(self, log: FaultyKafka, faults: Faults) -> None:
        super().__init__(log, REGISTRY)
        self._faults = faults

    def settled(self, keys: Collection[str], since: int | None = None) -> dict[str, Any]:
        self._faults.check("progress.read")
        return super().settled(keys, since)

    def decided(self, keys: Collection[str]) -> dict[str, Any]:
        self._faults.check("progress.read")
        return super().decided(keys)

    def newest(self, keys: Collection[str], since: int = 0) -> Found:
        self._faults.check("progress.newest")
        return super().newest(keys, since)


def committed(log: FaultyKafka) -> TaskProgress | None:
    """Return the committed progress of the task."""
    key = task_key("job", compiled().part.name, 0)
    entry = MemoryJournal(log, REGISTRY).settled([key]).get(key)
    return None if entry is None else TaskProgress.from_entry(entry)


@cache
def compiled() -> CompiledPart:
    """Return the task's sub-topology."""
    [part] = resolve(counts().loaded()).sub_topologies
    return compile_part(part)


@dataclass
class Job:
    """What outlasts attempts."""

    log: FaultyKafka
    faults: Faults
    size: int
    attempts: int = 0
    settings = Settings(
        backfill=BackfillSettings(commit_interval_seconds=5, stall_seconds=20, chunk_records=3)
    )

    def run(self, faults: Faults) -> TaskProgress:
        """Run another attempt."""
        log, part = self.log, compiled().part
        faults.killed = False
        identities = [StoreIdentity(store.name, store.changelog, LAYOUT) for store in part.stores]
        restoring = Restoration(
            faulty_changelogs(log, faults), float("inf"), lambda: log.now, lambda: log.now
        )
        context = AttemptContext(
            identity=TransactionalId.backfill("counts", f"job.{part.name}", 0),
            job="job",
            compiled=compiled(),
            settings=self.settings,
            starts={IN: 0},
            ends={IN: log.logs[IN].end},
            own_topics=frozenset(),
            outputs=FaultyOutputs(log, faults, self.overtake),
            journal=FaultyJournal(log, faults),
            holds_records=lambda ranges: bool(log.logs[IN].messages),
            state=LocalState(Machine(faults), {part.name: identities}, {part.name: 1}, restoring),
        )
        number, self.attempts = self.attempts, self.attempts + 1
        attempt = Attempt(context, number, clock=lambda: log.now, sleep=self._sleep)
        return attempt.run(lambda starts: self._rows(starts, faults))

    def overtake(self) -> None:
        """Let another attempt take the task, and kill it in a commit."""
        with suppress(Killed, EosError):
            self.run(Faults((Fault("outputs.commit", 3, "kill"),)))

    def _sleep(self, seconds: float) -> None:
        self.log.now += seconds

    def _rows(
        self, starts: Mapping[TopicPartition, int], faults: Faults
    ) -> Iterator[tuple[TopicPartition, Sequence[Message]]]:
        messages = self.log.logs[IN].read(0, 1000)
        for at in range(0, len(messages), self.size):
            faults.check("rows")
            self.log.now += 1.0
            yield IN, messages[at : at + self.size]


def play_backfill(faults: Faults, size: int) -> list[str]:
    """Run attempts until the task is complete, and return how those ended that failed.

    Args:
        size: so many rows come at once.

    Raises:
        Wrong: says what is wrong with what is committed, or that it does not end.
    """
    log = FaultyKafka({"in": 1, "out": 1, "dead": 1, REGISTRY: 1, "counts-counts-changelog": 1})
    log.has_one_fence = True
    for number, key in enumerate([*KEYS, *KEYS[3:9]]):
        log.append(("in", str(number).encode(), key.encode(), 0, None, None, number, None))
    job, endings = Job(log, faults, size), list[str]()
    CURRENT[0] = faults
    faults.pass_time = job._sleep
    try:
        while True:
            ending = _attempt(job, faults)
            _judge(job)
            if ending is None:
                return endings
            endings.append(ending)
            if len(endings) > len(faults.fired):
                raise Wrong(f"an attempt ended without a reason: {endings}")
    finally:
        CURRENT[0] = Faults()


def _attempt(job: Job, faults: Faults) -> str | None:
    try:
        progress = job.run(faults)
    except Killed:
        return "killed"
    except BaseException as error:
        expected = faults.explains(error) or isinstance(error, ClusterUnreachable)
        if job.log.misuses or not expected:
            raise Wrong(f"{job.log.misuses}: {type(error).__name__}: {error}") from error
        return f"{type(error).__name__}: {error}"
    if not progress.complete or progress.records != len(job.log.logs[IN].messages):
        raise Wrong(f"an attempt ended with {progress}")
    return None


def _judge(job: Job) -> None:
    """Outputs and changelog are what comes of the records before the committed position."""
    log = job.log
    if log.misuses:
        raise Wrong(f"misused: {log.misuses}")
    progress = committed(log)
    until = 0 if progress is None else progress.by_partition()[IN]
    inputs = [seen(m) for m in log.logs[IN].messages if m.offset() < until]
    wanted = model(inputs)
    for topic in ("out", "dead"):
        messages = log.logs[TopicPartition(topic, 0)].messages
        found: list[tuple[str, str, Any]] = [seen(message)[:3] for message in messages]
        if found != (expected := [sent for sent in wanted.sent if sent[0] == topic]):
            raise Wrong(f"{topic} at {until}: {found}, expected {expected}")
    entries = compacted(log, "counts-counts-changelog", 0)
    state = dict(number_by_text(key, entry) for key, entry in entries.items())
    if state != wanted.states["counts"]:
        raise Wrong(f"changelog at {until}: {state}, expected {wanted.states['counts']}")
    if progress is not None and progress.records != len(inputs):
        raise Wrong(f"{progress.records} records counted at {until}, there were {len(inputs)}")
    if progress is not None and progress.dead_letters != len(
        [sent for sent in wanted.sent if sent[0] == "dead"]
    ):
        raise Wrong(f"{progress.dead_letters} dead letters counted at {until}")
