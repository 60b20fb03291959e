"""The effects of a worker: which calls may begin, and which result a call has.

    J1  take over: init the ids of the journal (`Journal.open`, `transactions/ownership`)
    J2  read the journal (`JournalReading`)
    J3  commit an intent: key, and an attempt number above each earlier one
    J4  call, in a doubt after a look-up
    J5  commit the result
    J6  return it to the calls that wait; their records are run with it

A call that wants an effect waits until the effect has a committed result. Effects belong to tasks:
they continue when a record is rewound, and its call waits for them when it is fetched again.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from eosframework.engine.calls.call_runner import CallRunner
from eosframework.engine.calls.flights import Call, Flight
from eosframework.engine.conversions import moment
from eosframework.engine.effects.effect_call import EffectCall, Run, in_thread
from eosframework.engine.effects.entries import (
    Entry,
    EntryState,
    error_text,
    result_of,
    value_of,
)
from eosframework.engine.effects.journal import Background, Journal, Write, in_background
from eosframework.engine.effects.reading import JournalReading
from eosframework.engine.effects.task_effects import Reached, Running, TaskEffects
from eosframework.engine.failures.failure_headers import RetriedRecord
from eosframework.engine.stores.state_ports import Changelogs
from eosframework.errors import EffectInDoubt, EffectUnusable, raised_by_functions
from eosframework.records import Effect, TopicPartition
from eosframework.topology.graph.graph import Step, SubTopology
from eosframework.topology.spec.once_spec import OnDoubt
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Purger, TransactionalOutputs
from eosframework.txnid import TransactionalId, effects_id

AHEAD = 2
"""Effects of a step that have begun, by its concurrency: those in flight, and as many whose intents
or results are being written."""


@dataclass(frozen=True, slots=True)
class EffectPorts:
    """The surroundings of a worker's effects.

    Args:
        outputs: opens the journal's producers; used by nothing else.
        topics: reads the journals.
        purger: deletes records of journals; None: they are kept.
        run: runs functions without `async`.
        background: returns what runs the journal's transactions.
    """

    outputs: TransactionalOutputs
    topics: Changelogs
    purger: Purger | None = None
    run: Run = in_thread
    background: Callable[[], Background] = in_background


class Effects:
    """The effects of a worker; see `engine.calls.call_runner.Effects`.

    Args:
        runner: of the worker; it hands calls over from now on.
        journal: writes entries.
        reading: reads them.
        run: runs functions without `async`.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        runner: CallRunner,
        journal: Journal,
        reading: JournalReading,
        run: Run,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        runner.effects = self
        self._journal = journal
        self._reading = reading
        self._run = run
        self._clock = clock
        self._tasks: dict[TransactionalId, TaskEffects] = {}
        self._waiting: dict[Step, dict[TaskEffects, deque[Running]]] = {}
        self._begun: Counter[Step] = Counter()
        self._begun_of: Counter[tuple[Step, TaskEffects]] = Counter()
        self._calls: dict[Call, Running] = {}
        self._resting: list[tuple[float, Running]] = []
        self._ready: list[EffectCall] = []
        self._is_draining = False
        self._events = structlog.get_logger("eosframework.effects")

    # --- tasks -----------------------------------------------------------------------------------

    def open(self, ids: Sequence[str]) -> None:
        """Take ids of the journal (J1).

        Raises:
            TransactionError: one could not be inited.
        """
        self._journal.open(ids)

    def give_up(self) -> None:
        """Close the producers of ids that no task joined: the takeover failed."""
        self._journal.close_unused()

    def join(self, identity: TransactionalId, part: SubTopology, own_id: str) -> TaskEffects | None:
        """Return the effects of a task that was taken over; None: it has none.

        Args:
            identity: of the task.
            part: its sub-topology.
            own_id: of its outputs.
        """
        if part.effects_topic is None:
            return None
        partition = TopicPartition(part.effects_topic, identity.partition)
        task = TaskEffects(identity, partition, effects_id(own_id), part)
        self._tasks[identity] = task
        self._journal.join(task)
        return task

    def follow(self, identity: TransactionalId, reached: Reached) -> None:
        """Let entries of a task expire by its committed offsets."""
        if (task := self._tasks.get(identity)) is not None:
            task.reached = reached

    def read(self, identities: Iterable[TransactionalId]) -> set[TransactionalId]:
        """Read journals for a slice of time (J2), and return the tasks that can run.

        Raises:
            RunError: an entry, or what an open transaction hides, cannot be read.
        """
        wanted = [*identities]
        tasks = {one: self._tasks[one] for one in wanted if one in self._tasks}
        unread = [task for task in tasks.values() if not task.is_read]
        if unread:
            self._reading.turn(unread)
        return {one for one in wanted if one not in tasks or tasks[one].is_read}

    def drain(self, seconds: float) -> None:
        """Wait until the effects that have begun have results: their tasks leave, as planned.

        The next owner would find each of the others in doubt.
        """
        until = time.monotonic() + seconds
        self._is_draining = True
        try:
            while self._begun.total() and time.monotonic() < until:
                self._runner.collect()
                if self._begun.total():
                    self._runner.wait(0.005)
        finally:
            self._is_draining = False

    def release(self, identities: Iterable[TransactionalId]) -> None:
        """Give tasks up; their effects that are under way are cancelled, and will be in doubt."""
        left = [self._tasks.pop(one) for one in identities if one in self._tasks]
        for task in left:
            task.is_closed = True
            if begun := [one for one in task.running.values() if one.holds_place]:
                self._events.warning(
                    "effects_left_in_doubt",
                    task=task.identity.name,
                    count=len(begun),
                    first=begun[0].key,
                )
            for running in task.running.values():
                self._free(running)
                if running.call is not None:
                    running.call.flight.is_cancelled = True
                    self._calls.pop(running.call, None)
            task.running.clear()
            for lanes in self._waiting.values():
                lanes.pop(task, None)
            self._runner.abandon(task.carrier)
        self._resting = [(at, one) for at, one in self._resting if not one.task.is_closed]
        self._ready = [call for call in self._ready if not call.flight.is_cancelled]
        self._journal.leave(left)

    def close(self) -> None:
        """End; all tasks were released."""
        self._reading.close()
        self._journal.close()

    # --- calls -----------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """True while entries are on their way."""
        return self._journal.is_writing

    def ask(self, call: Call) -> None:
        """Take a call of a record that wants an effect."""
        task = call.flight.owner
        assert isinstance(task, TaskEffects), "the task has a journal"
        try:
            key = task.key_of(call)
        except raised_by_functions() as error:
            call.error = error
            self._runner.done(call)
            return
        if (running := task.running.get(key)) is not None:
            running.waiters.append(call)
            return
        entry = task.entry(key)
        if entry is None and isinstance(call.flight.message, RetriedRecord):
            # Its earlier entries have expired. Seconds exceed each count of attempts.
            entry = Entry(EntryState.FAILED, int(self._journal.now()), "", 0, error="unknown")
        if entry is None:
            self._queue(Running(key, task, call, attempt=1, looks_up=False))
        elif entry.is_doubt:
            self._doubt(key, task, call, entry)
        else:
            _answer(call, entry, None)
            self._runner.done(call)

    def ended(self, call: Call) -> bool:
        """Take an ended attempt, and write its result (J5); False: the call is a record's."""
        if not isinstance(call, EffectCall):
            return False
        failpoints.hit("effects.after_call")
        if (running := self._calls.pop(call, None)) is None:
            return True
        running.call = None
        state, result, text = EntryState.DONE, b"null", ""
        if call.error is not None:
            state, text = EntryState.FAILED, error_text(call.error)
        else:
            try:
                result = result_of(call.result)
            except raised_by_functions() as error:
                state, text = EntryState.UNUSABLE, error_text(error)
        entry = self._entry(running, state, result, text)
        self._write(running, entry, partial(self._settle, running, entry, call.error))
        return True

    def turn(self) -> None:
        """Write what is due, and begin calls whose intents are written.

        Raises:
            RunError: the journal cannot be written until the cause is fixed.
        """
        if self._resting:
            self._wake()
        if not self._is_draining:
            for step in self._waiting:
                self._begin_of(step)
        self._journal.turn()
        if self._ready:
            ready, self._ready = self._ready, []
            failpoints.hit("effects.before_call")
            self._runner.begin(ready)

    def _doubt(self, key: str, task: TaskEffects, call: Call, entry: Entry) -> None:
        assert call.node.once is not None
        policy = call.node.once.on_doubt
        if policy is OnDoubt.DEAD_LETTER:
            call.error = _in_doubt(key, entry)
            self._events.warning("effect_in_doubt", key=key, attempt=entry.attempt)
            self._runner.done(call)
            return
        looks_up = policy is OnDoubt.LOOK_UP
        self._events.info("effect_in_doubt", key=key, attempt=entry.attempt, policy=str(policy))
        self._queue(Running(key, task, call, attempt=entry.attempt + 1, looks_up=looks_up))

    def _queue(self, running: Running) -> None:
        if not running.waiters:
            running.waiters.append(running.wanted)
        running.task.running[running.key] = running
        lanes = self._waiting.setdefault(running.step, {})
        lanes.setdefault(running.task, deque()).append(running)

    def _wake(self) -> None:
        now = self._clock()
        due = [one for at, one in self._resting if at <= now]
        self._resting = [(at, one) for at, one in self._resting if at > now]
        for running in due:
            self._queue(running)

    def _begin_of(self, step: Step) -> None:
        """Write intents of a step (J3), of its tasks in turns."""
        lanes = self._waiting[step]
        assert step.calls is not None
        most = AHEAD * step.calls.limits.concurrency
        while lanes:
            is_full = self._begun[step] >= most
            task = next((t for t in lanes if not is_full or not self._begun_of[step, t]), None)
            if task is None:
                return
            lane = lanes.pop(task)
            running = lane.popleft()
            if lane:
                lanes[task] = lane
            running.holds_place = True
            self._begun[step] += 1
            self._begun_of[step, task] += 1
            entry = self._entry(running, EntryState.INTENT)
            self._write(running, entry, partial(self._begin, running))

    def _begin(self, running: Running) -> None:
        """Prepare a call whose intent is committed (J4)."""
        flight = Flight(running.wanted.flight.message, None, running.task.carrier)
        effect = Effect(running.key, running.attempt)
        call = EffectCall(running.wanted, flight, effect, looks_up=running.looks_up, run=self._run)
        running.call = call
        self._calls[call] = running
        self._ready.append(call)

    def _settle(self, running: Running, entry: Entry, error: BaseException | None) -> None:
        """Return a committed result to the calls that wait for it (J6)."""
        self._free(running)
        once = running.once
        pauses = once.timing.retry_seconds
        if entry.state is EntryState.FAILED and running.failures < len(pauses):
            at = self._clock() + pauses[running.failures]
            running.failures += 1
            running.attempt += 1
            running.looks_up = once.on_doubt is OnDoubt.LOOK_UP
            self._resting.append((at, running))
            return
        del running.task.running[running.key]
        for call in running.waiters:
            _answer(call, entry, error)
            self._runner.done(call)

    def _free(self, running: Running) -> None:
        if running.holds_place:
            running.holds_place = False
            self._begun[running.step] -= 1
            self._begun_of[running.step, running.task] -= 1

    def _entry(
        self, running: Running, state: EntryState, result: bytes = b"null", error: str = ""
    ) -> Entry:
        message, now_ms = running.wanted.flight.message, round(self._journal.now() * 1000)
        topic, offset = message.topic(), message.offset()
        return Entry(state, running.attempt, topic, offset, result, error, now_ms)

    def _write(self, running: Running, entry: Entry, written: Callable[[], None]) -> None:
        self._journal.add(Write(running.task, running.key, entry, written))


def _answer(call: Call, entry: Entry, error: BaseException | None) -> None:
    """Give a call the result of its effect."""
    match entry.state:
        case EntryState.DONE:
            call.result = value_of(entry.result)
        case EntryState.UNUSABLE:
            call.error = EffectUnusable(
                f"the effect took place, and its result cannot be kept: {entry.error}. Return "
                f"plain JSON, or the part of it that the record needs; it is not called again"
            )
        case _:
            call.error = error


def _in_doubt(key: str, entry: Entry) -> EffectInDoubt:
    ended = f", and ended with {entry.error}" if entry.error else ""
    return EffectInDoubt(
        f"effect {key!r} may have taken place: attempt {entry.attempt} began at "
        f"{moment(entry.written_ms)}{ended}. It is not called again; ask the service"
    )
