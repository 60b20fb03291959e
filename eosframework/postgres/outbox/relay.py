"""The outbox relay's cycle: sends each message of the outbox to Kafka exactly once.

Taking a shard over, in this order:

    RT1  lock the shard in the database, compare the database's history with the committed position,
        and register the relay's name in the database, which accepts one name only. A relay that
        is configured for another database stops here, before it fences the right one
    RT2  init the shard's transactional.id: fence the previous relay and end its open transaction
    RT3  read the shard's position from the control topic
    RT4  compare the database's history with that position; refuse to send if they contradict
    RT5  increment the shard's turn in the database, so that a restored older database is detected

One transaction:

    1  find the number up to which the outbox is final
    2  read the messages after the position
    3  begin, with the first message
    4  produce; messages that cannot be sent are set aside before (see `refused_messages`)
    5  produce the position to the control topic
    6  commit all shards of the relay in one round
    7  decide the outcome (see `sharding` and `transactions/session`)
    8  delete sent messages, when nothing is left to send

A relay that ends before its first commit has sent nothing; it removes its name from the database.

A lost database session releases the locks of RT1. The relay then gives every shard up, aborts the
open transactions, and takes shards over again when the database is available.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from eosframework.config import OutboxRefusal
from eosframework.engine.task.measurements import Measures, MeasuresSnapshot, TransactionMeasures
from eosframework.errors import (
    ClusterUnreachable,
    DatabaseUnavailable,
    RunError,
    StartRefused,
    TransactionError,
)
from eosframework.postgres.outbox.refused_messages import Refusals
from eosframework.postgres.outbox.relay_position import (
    Backlog,
    DatabaseState,
    Destinations,
    OutboxSource,
    RelayCounts,
    RelayPosition,
    refuse_other_history,
)
from eosframework.postgres.outbox.sharding import Shard, fair_share, relay_policy, shard_claim
from eosframework.transactions import failpoints
from eosframework.transactions.ports import Journal, TransactionalOutputs
from eosframework.transactions.session.owned_keys import OwnedKey, OwnedKeys

SHARING_SECONDS = 1.0
"""Interval at which a relay checks for free shards and for relays that need some of its own."""

UNSETTLED_SECONDS = 0.002
"""First pause while open transactions hold messages back; doubled up to the poll interval."""

BACKLOG_SECONDS = 0.5
"""Longest transaction while every shard has a backlog, unless the commit interval is longer. Fewer
commits send a backlog faster, so its messages do not become visible later."""

BACKLOG_LOOK_SECONDS = 2.0
"""Age at which the reported backlog is read again."""

CLEANING_STEP_SECONDS = 0.5
"""Committed positions of a shard that are closer together than this are cleaned as one."""

FIRST_BACKOFF_SECONDS = 0.2
LONGEST_BACKOFF_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """Options of a relay; see the settings of the same names."""

    name: str
    shards: int
    batch_rows: int
    commit_interval_seconds: float
    poll_interval_seconds: float
    keep_seconds: float
    transaction_timeout_seconds: float
    start_timeout_seconds: float
    on_refused: OutboxRefusal = OutboxRefusal.SET_ASIDE


@dataclass(frozen=True, slots=True)
class RelayView:
    """A snapshot of a relay.

    Args:
        shards: the relay's shards, each with whether it is in service.
        stands_by: other relays have all shards.
        unavailable: the unavailable system that the relay waits for; None: there is none.
        backlog: of the relay's shards, when it was last read; None: not yet.
    """

    counts: RelayCounts
    shards: Mapping[int, bool]
    stands_by: bool
    unavailable: str | None
    measured: MeasuresSnapshot
    backlog: Backlog | None


class Relay:
    """One relay process; it runs its share of the shards among the relays of the same name.

    Args:
        source: the outbox in the database.
        outputs: transactional producers.
        journal: has the relay's positions.
        destinations: describes the topics that messages go to.
        options: of the relay.
        clock: monotonic, in seconds.
        sleep: waits for seconds while the database or the cluster is unavailable.
        on_turn: called after each turn of the cycle.
        on_wait: called while the database works for long.
        measured: collect measurements and read the backlog, for metrics.
    """

    def __init__(
        self,
        source: OutboxSource,
        outputs: TransactionalOutputs,
        journal: Journal,
        destinations: Destinations,
        options: RelayOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        on_turn: Callable[[], None] = lambda: None,
        on_wait: Callable[[], None] = lambda: None,
        measured: bool = False,
    ) -> None:
        self.counts = RelayCounts()
        self._source = source
        self._outputs = outputs
        self._journal = journal
        self._options = options
        self._refusals = Refusals(options.on_refused, destinations, self.counts)
        self._clock = clock
        self._sleep = sleep
        self._on_turn = on_turn
        self._on_wait = on_wait
        source.ends_waiting = self._is_over
        self._shards: dict[int, Shard] = {}
        self._retention = _Retention(options.keep_seconds, clock)
        self._keys: OwnedKeys[RelayPosition] = OwnedKeys(
            outputs,
            journal,
            relay_policy(options.name, options.transaction_timeout_seconds),
            structlog.get_logger("eosframework.relay"),
            lost="Start the relay again: it names the next step",
            counts=self.counts,
            clock=clock,
            sleep=sleep,
        )
        self._connected = False
        self._has_run = False
        self._start_until = clock() + options.start_timeout_seconds
        self._is_unused = False
        self._stands_by = False
        self._unavailable: str | None = None
        self._measures = Measures()
        self._is_measured = measured
        self._backlog: Backlog | None = None
        self._backlog_at = clock()
        self._interval_seconds = options.commit_interval_seconds
        self._share_at = clock()
        self._failures = 0
        self._unsettled_seconds = UNSETTLED_SECONDS
        self._stop = False
        self._events = structlog.get_logger("eosframework.relay").bind(relay=options.name)

    def stop(self) -> None:
        """Ask the relay to commit what is complete and return; safe in a signal handler."""
        self._stop = True

    def view(self) -> RelayView:
        """Return a snapshot for other threads; called on the main thread."""
        shards = {number: not s.owned.is_out for number, s in self._shards.items()}
        return RelayView(
            replace(self.counts),
            shards,
            self._stands_by,
            self._unavailable,
            self._measures.snapshot(),
            self._backlog,
        )

    def run(self, *, until_caught_up: bool = False) -> RelayCounts:
        """Send messages until `stop`.

        Args:
            until_caught_up: also stop once every final message is sent.

        Raises:
            StartRefused: the database's history contradicts the position; nothing was sent.
            UserError: the database or the cluster cannot be used.
            RunError: the same, found later; or a message cannot be sent.
            InstanceFenced: another relay uses the same name for another database.
        """
        try:
            while not self._stop:
                caught_up = self._guarded_turn()
                self._on_turn()
                if caught_up and until_caught_up:
                    break
        except StartRefused as error:
            if self._has_run:
                raise RunError(str(error)) from error
            raise
        finally:
            self._give_up(list(self._shards.values()))
            self._outputs.stop()
            self._forget_unused_name()
            self._source.close()
        return self.counts

    def _is_over(self) -> bool:
        self._on_wait()
        return self._stop

    def _guarded_turn(self) -> bool:
        """Run one turn; back off while the database or the cluster is unavailable."""
        try:
            caught_up = self._turn()
        except DatabaseUnavailable as error:
            self._lose_session(error)
            return False
        except ClusterUnreachable as error:
            if not self._has_run and self._clock() >= self._start_until:
                raise
            self._back_off("cluster_unavailable", error)
            return False
        self._unavailable = None
        if self._failures and self._shards:
            self._events.info("relay_resumed")
            self._failures = 0
        return caught_up

    def _turn(self) -> bool:
        """Rebalance shards, run one round, clean, wait; return whether all final rows are sent."""
        if not self._connected:
            self._source.connect()
            self._connected = True
            self._share_at = self._clock()
        self._share()
        sessions = {shard: shard.owned for shard in self._shards.values()}
        running = [
            shard
            for shard, session in sessions.items()
            if not session.is_out and session.size.rest_seconds == 0
        ]
        waits = self._source.look() if running else False
        more = self._round(running)
        self._look_at_backlog()
        troubled = self._is_troubled()
        self._keys.sessions.recover([shard.owned for shard in self._shards.values()])
        if more and not troubled:
            if self._source.wants_clean:
                self._clean()
            return False
        cleaned_all = self._clean()
        settled = bool(running) and not waits and not troubled and not more
        if not self._stop and cleaned_all:
            self._source.wait(self._pause_seconds(waits))
        return settled

    def _is_troubled(self) -> bool:
        return any(shard.owned.is_out for shard in self._shards.values())

    def _pause_seconds(self, waits: bool) -> float:
        """Return the longest wait for a notification before the next turn."""
        longest = min(self._options.poll_interval_seconds, max(self._share_at - self._clock(), 0.0))
        if self._is_troubled():
            longest = min(longest, FIRST_BACKOFF_SECONDS / 4)
        if not waits:
            self._unsettled_seconds = UNSETTLED_SECONDS
            return longest
        pause, self._unsettled_seconds = self._unsettled_seconds, self._unsettled_seconds * 2
        self._unsettled_seconds = min(self._unsettled_seconds, self._options.poll_interval_seconds)
        return min(longest, pause)

    # --- shards come and go -----------------------------------------------------------------

    def _share(self) -> None:
        """Take free shards up to this relay's share, and give up the surplus."""
        if self._clock() < self._share_at:
            return
        share = fair_share(self._options.shards, self._source.relays())
        beyond = [*self._shards.values()][share:]
        self._give_up(beyond)
        for shard in beyond:
            self._source.unlock_shard(shard.number)
            self._events.info("shard_given_up", shard=shard.number)
        self._take_over(share - len(self._shards))
        self._share_at = self._clock() + SHARING_SECONDS
        if self._stands_by != (not self._shards):
            self._stands_by = not self._shards
            self._events.info("relay_stands_by" if self._stands_by else "relay_active")

    def _take_over(self, most: int) -> None:
        """Take free shards over, all of them at once (RT1 to RT5).

        A suspended relay's open transaction in any shard holds back the last stable offset of the
        control topic, so every id is inited before the positions are read.
        """
        numbers: list[int] = []
        for number in range(self._options.shards):
            if (
                len(numbers) < most
                and number not in self._shards
                and self._source.lock_shard(number)
            ):
                numbers.append(number)
        if not numbers:
            return
        try:
            # RT1. Compare before RT2: initing the ids would fence a relay that is right.
            claims = {number: shard_claim(self._options.name, number) for number in numbers}
            decided = self._journal.decided([claim.key for claim in claims.values()])
            for number, claim in claims.items():
                self._refuse_other_history(number, claim.of(decided))
            self._is_unused = self._source.register() or self._is_unused
            failpoints.hit("relay.after_hold")
            claimed = dict(zip(claims, self._keys.claim([*claims.values()]), strict=True))
            opened = self._opened(claimed)
        except (TransactionError, ClusterUnreachable) as error:
            for number in numbers:
                self._source.unlock_shard(number)
            raise ClusterUnreachable(f"shards {numbers} were not taken over: {error}") from error
        for shard in opened:
            self._shards[shard.number] = shard
            self._retention.committed(shard.number, shard.position)
            self._has_run = True
            self._events.info(
                "shard_assigned",
                shard=shard.number,
                transactional_id=shard.owned.transactional_id,
                through=shard.position.through,
            )

    def _opened(self, claimed: Mapping[int, OwnedKey[RelayPosition]]) -> list[Shard]:
        try:
            starts = {number: self._start_of(number, one.known) for number, one in claimed.items()}
        except BaseException:
            self._keys.close([*claimed.values()])
            raise
        failpoints.hit("relay.after_turn")
        return [
            Shard(
                number,
                session,
                starts[number],
                self._source,
                self._sent,
                self._refusals,
                batch_rows=self._options.batch_rows,
                is_new=session.known is None,
                flow=TransactionMeasures(self._measures) if self._is_measured else None,
            )
            for number, session in claimed.items()
        ]

    def _start_of(self, number: int, position: RelayPosition | None) -> RelayPosition:
        """Return the position at which a shard resumes (RT4, RT5)."""
        found = self._refuse_other_history(number, position)
        turn = self._source.next_turn(number)
        return RelayPosition(
            source=found.source,
            through=self._source.start(number, found) if position is None else position.through,
            within=0 if position is None else position.within,
            origin=found.origin,
            turn=turn,
            shards=self._options.shards,
        )

    def _refuse_other_history(self, number: int, position: RelayPosition | None) -> DatabaseState:
        found = self._source.found(number)
        refuse_other_history(self._options.name, self._options.shards, position, found)
        return found

    def _give_up(self, shards: list[Shard]) -> None:
        """Discard the producers of shards; their open transactions are aborted."""
        for shard in shards:
            del self._shards[shard.number]
            self._retention.forget(shard.number)
        if shards:
            self._keys.close([shard.owned for shard in shards])

    def _forget_unused_name(self) -> None:
        """Remove a name under which nothing was sent, so that the right relay is not refused."""
        if not self._is_unused:
            return
        with suppress(DatabaseUnavailable):
            if self._source.relays() == 1:
                self._source.forget(self._options.name)

    def _lose_session(self, error: DatabaseUnavailable) -> None:
        """Give every shard up: the locks ended with the session."""
        self._connected = False
        self._backlog = None
        self.counts.database_retries += 1
        self._give_up(list(self._shards.values()))
        self._source.close()
        self._back_off("database_unavailable", error)

    def _back_off(self, event: str, error: Exception) -> None:
        self._unavailable = event.replace("_", " ")
        seconds = min(FIRST_BACKOFF_SECONDS * 2**self._failures, LONGEST_BACKOFF_SECONDS)
        if self._failures == 0:
            self._events.warning(event, error=str(error))
        self._failures = min(self._failures + 1, 10)
        until = self._clock() + seconds
        while not self._stop and self._clock() < until:
            self._sleep(min(0.1, seconds))

    # --- one round of transactions ----------------------------------------------------------

    def _round(self, shards: list[Shard]) -> bool:
        """Send and commit final messages (steps 2 to 7); return whether any are left.

        Each shard may use its part of the interval and the unused parts of earlier shards.
        """
        began, part = self._clock(), self._interval_seconds / max(len(shards), 1)
        left = 0
        ready: list[Shard] = []
        for place, shard in enumerate(shards, 1):
            until = began + place * part
            try:
                left += shard.fill(lambda u=until: self._stop or self._clock() >= u)
                if shard.in_transaction:
                    ready.append(shard)
            except TransactionError as error:
                self._keys.sessions.failed(shard.owned, error)
        self._set_interval(all_left=0 < left == len(shards))
        self._commit(ready)
        return left > 0

    def _set_interval(self, *, all_left: bool) -> None:
        """Double the interval while every shard has a backlog."""
        shortest = self._options.commit_interval_seconds
        longest = max(shortest, BACKLOG_SECONDS)
        self._interval_seconds = min(self._interval_seconds * 2, longest) if all_left else shortest

    def _commit(self, ready: list[Shard]) -> None:
        """Commit the transactions of this round and handle their outcomes (steps 6 and 7)."""
        if not ready:
            return
        self._is_unused = False
        started = self._clock()
        self._keys.sessions.commit(
            [shard.owned for shard in ready], [shard.commit() for shard in ready]
        )
        self._measures.commit_seconds.add(self._clock() - started)

    def _sent(self, shard: Shard, messages: int, seconds: float) -> None:
        if self._is_measured:
            self._measures.committed(messages, seconds)
        self.counts.messages += messages
        self._retention.committed(shard.number, shard.position)

    def _look_at_backlog(self) -> None:
        """Read the backlog for metrics, at most every `BACKLOG_LOOK_SECONDS`."""
        if not self._is_measured or self._clock() < self._backlog_at:
            return
        self._backlog_at = self._clock() + BACKLOG_LOOK_SECONDS
        looks = [self._source.backlog(n, shard.read_to) for n, shard in self._shards.items()]
        self._backlog = _total(looks)

    def _clean(self) -> bool:
        """Delete some messages whose retention ended (step 8); return whether none are left."""
        done = True
        for number, position in self._retention.due():
            shard = self._shards[number]
            failpoints.hit("relay.before_clean")
            more = self._source.clean(number, position)
            shard.count_turn(self._source.next_turn(number))
            failpoints.hit("relay.after_clean")
            if more:
                done = False
            else:
                self._retention.done(number, position)
        return done


class _Retention:
    """Remembers committed positions until the messages before them may be deleted.

    Args:
        keep_seconds: retention of messages after they were sent.
        clock: monotonic, in seconds.
    """

    def __init__(self, keep_seconds: float, clock: Callable[[], float]) -> None:
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._waiting: dict[int, deque[tuple[float, RelayPosition]]] = {}

    def committed(self, shard: int, position: RelayPosition) -> None:
        """Note a committed position."""
        now = self._clock()
        waiting = self._waiting.setdefault(shard, deque())
        if len(waiting) > 1 and now - waiting[-2][0] < CLEANING_STEP_SECONDS:
            waiting.pop()
        waiting.append((now, position))

    def due(self) -> list[tuple[int, RelayPosition]]:
        """Return for each shard the newest position that is old enough."""
        limit = self._clock() - self._keep_seconds
        found: list[tuple[int, RelayPosition]] = []
        for shard, waiting in self._waiting.items():
            while len(waiting) > 1 and waiting[1][0] <= limit:
                waiting.popleft()
            if waiting and waiting[0][0] <= limit:
                found.append((shard, waiting[0][1]))
        return found

    def done(self, shard: int, position: RelayPosition) -> None:
        """Note that all messages up to a position are deleted."""
        waiting = self._waiting[shard]
        while waiting and waiting[0][1].through <= position.through:
            waiting.popleft()

    def forget(self, shard: int) -> None:
        """Drop the positions of a shard that another relay takes over and cleans."""
        self._waiting.pop(shard, None)


def _total(backlogs: Sequence[Backlog]) -> Backlog:
    """Return the backlog of all shards of a relay."""
    messages = [found.messages for found in backlogs if found.messages is not None]
    oldest = [found.oldest_seconds for found in backlogs if found.oldest_seconds is not None]
    logs = [found.log_bytes for found in backlogs if found.log_bytes is not None]
    return Backlog(
        sum(messages) if messages else None,
        max(oldest, default=None),
        max(logs, default=None),
    )
