"""Reconciliation: sets a relay's positions after its database's history or its name changed.

    RC1  lock every shard, also those of relays of other names, so that no relay runs
    RC2  before sending: init every id, so that a suspended relay can no longer write
    RC3  wait until every row in the outbox is final
    RC4  decide for each message whether it was sent: by the position if it still belongs to the
        database's history, else by the ids of the messages in Kafka
    RC5  send the missing messages, in the order of the outbox; set aside those that cannot be sent
    RC6  write all positions in one transaction: the relay resumes after the compared messages
    RC7  remove the other names from the database, so that no relay starts under them

Until RC6 the relay refuses to start, and a repeated RC4 finds in Kafka what RC5 sent. So the
reconciliation may be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from eosframework.config import OutboxRefusal
from eosframework.errors import DataRejected, RunError, StartRefused, TransactionError
from eosframework.postgres.outbox.refused_messages import Refusals, refusal_of
from eosframework.postgres.outbox.relay_position import (
    Candidate,
    DatabaseState,
    Destinations,
    OutboxSource,
    Refused,
    RelayCounts,
    RelayPosition,
    SentLog,
    SentMessages,
    fits,
    position_key,
)
from eosframework.postgres.outbox.sharding import relay_id, shard_of
from eosframework.transactions.ports import (
    Commit,
    Journal,
    TransactionalOutput,
    TransactionalOutputs,
)
from eosframework.transactions.producing import fence, produce_all

SHOWN = 20
CHUNK = 2000
UNKNOWN_BYTES = 2**62
"""More than any message has, so every message of a topic with a limit is measured."""


@dataclass(slots=True)
class Comparison:
    """The messages in the outbox compared with the messages that were sent.

    Args:
        by: `position` or `kafka`, the source of the decision.
        sent: number of messages in the outbox that were sent.
        missing: number of messages that were not sent, by topic.
        uncertain: number of missing messages, by topic, that may have been sent and removed from
            the topic since, by its retention or its compaction.
        first: the first missing messages.
        refused: number of messages that were set aside because Kafka does not accept them.
    """

    by: str
    sent: int = 0
    missing: dict[str, int] = field(default_factory=dict[str, int])
    uncertain: dict[str, int] = field(default_factory=dict[str, int])
    first: list[Candidate] = field(default_factory=list[Candidate])
    refused: int = 0

    @property
    def total(self) -> int:
        """Number of missing messages in all topics."""
        return sum(self.missing.values())


class Reconciler:
    """Compares one relay's outbox with Kafka, and sends the difference.

    Args:
        name: the relay's.
        shards: the number of shards in the settings.
        source: the outbox, connected.
        outputs: transactional producers.
        journal: has the relay's positions.
        sent_log: reads ids of messages from Kafka.
        destinations: describes the topics that messages go to.
        on_refused: policy for messages that Kafka does not accept.
        ids_of_rival: returns the transactional ids of a relay of another name, given its name and
            shards; none if it belongs to another database.
        wait: called with seconds while transactions that published are open.
        patience_seconds: longest wait for those transactions.
    """

    def __init__(
        self,
        name: str,
        shards: int,
        source: OutboxSource,
        outputs: TransactionalOutputs,
        journal: Journal,
        sent_log: SentLog,
        destinations: Destinations,
        *,
        on_refused: OutboxRefusal = OutboxRefusal.SET_ASIDE,
        wait: Callable[[float], None],
        ids_of_rival: Callable[[str, int], Sequence[str]] = lambda _name, _shards: (),
        patience_seconds: float = 60.0,
    ) -> None:
        self._name = name
        self._shards = shards
        self._source = source
        self._outputs = outputs
        self._journal = journal
        self._sent_log = sent_log
        self._counts = RelayCounts()
        self._refusals = Refusals(on_refused, destinations, self._counts)
        self._wait = wait
        self._ids_of_rival = ids_of_rival
        self._patience_seconds = patience_seconds

    def compare(self) -> Comparison:
        """Compare the outbox with Kafka (RC1, RC3, RC4) without changing anything.

        Raises:
            StartRefused: a relay of this name runs, or a transaction that published stays open.
            ClusterUnreachable, DatabaseUnavailable: the comparison could not be made.
        """
        self._hold_all(self._positions())
        self._until_final()
        return self._compared(self._judge(self._positions()))

    def _positions(self) -> dict[int, RelayPosition]:
        keys = {position_key(shard): shard for shard in range(self._shards)}
        found = self._journal.settled(keys)
        return {keys[key]: RelayPosition.from_entry(entry) for key, entry in found.items()}

    def notes(self) -> list[str]:
        """Return notes for the user in addition to the comparison."""
        rivals = [
            f"the database knows relay {name!r} too; this one takes its place, and the database "
            f"forgets the other name"
            for name in self._source.rivals()
        ]
        return [*rivals, *self._source.notes()]

    def settle(self, *, uncertain: bool) -> Comparison:
        """Send the missing messages, and set the positions (RC1 to RC7).

        Args:
            uncertain: also send messages that may have been sent and removed since.

        Raises:
            StartRefused: as `compare`.
            RunError: a call to Kafka failed; the reconciliation may be repeated.
        """
        entries = self._positions()
        numbers = self._hold_all(entries)
        rivals = self._source.rivals()
        former = [
            id_ for name, shards in rivals.items() for id_ in self._ids_of_rival(name, shards)
        ]
        fence(self._outputs, former)
        outputs = self._outputs.open([relay_id(self._name, number) for number in numbers])
        try:
            self._until_final()
            judge = self._judge(self._positions())
            comparison = self._compared(judge)
            wanted = (
                candidate
                for candidate in self._source.candidates()
                if not judge.was_sent(candidate) and (uncertain or judge.is_sure(candidate))
            )
            while chunk := list(islice(wanted, CHUNK)):
                self._send(chunk, outputs[0])
            self._set_positions(outputs[0], numbers)
            for name in rivals:
                self._source.forget(name)
            comparison.refused = self._counts.refused
            return comparison
        finally:
            self._outputs.close(outputs)

    def _hold_all(self, entries: Mapping[int, RelayPosition]) -> list[int]:
        """Lock every current and former shard, so that no relay runs in the meantime."""
        counts = [self._shards, self._source.known_shards()]
        counts += [position.shards for position in entries.values()]
        numbers = list(range(max(counts)))
        for number in numbers:
            if not self._source.lock_shard(number):
                raise StartRefused(
                    f"a relay {self._name!r} runs and holds shard {number}; stop it, then reconcile"
                )
        for name, shards in self._source.rivals().items():
            for number in range(shards):
                if not self._source.hold_rival(name, number):
                    raise StartRefused(
                        f"a relay {name!r} runs on the same database and holds shard {number}; "
                        f"stop it, then reconcile"
                    )
        return numbers

    def _until_final(self) -> None:
        waited_seconds, pause_seconds = 0.0, 0.005
        while self._source.look():
            if waited_seconds > self._patience_seconds:
                raise StartRefused(
                    f"a transaction that published is open for more than "
                    f"{self._patience_seconds:g} s, so it is not known what the outbox will hold; "
                    f"end it, then reconcile"
                )
            self._wait(pause_seconds)
            waited_seconds += pause_seconds
            pause_seconds = min(pause_seconds * 2, 1.0)

    def _judge(self, entries: Mapping[int, RelayPosition]) -> _Judge:
        found = {number: self._source.found(number) for number in entries}
        if entries and _all_fit(entries, found):
            return _ByPosition(entries, self._source.candidates())
        since: dict[str, int] = {}
        for candidate in self._source.candidates():
            topic, moment = candidate.output[0], candidate.output[6]
            since[topic] = min(moment, since.get(topic, moment))
        return _ByKafka(self._sent_log.sent(since))

    def _compared(self, judge: _Judge) -> Comparison:
        comparison = Comparison(judge.by)
        for candidate in self._source.candidates():
            if judge.was_sent(candidate):
                comparison.sent += 1
                continue
            topic = candidate.output[0]
            comparison.missing[topic] = comparison.missing.get(topic, 0) + 1
            if not judge.is_sure(candidate):
                comparison.uncertain[topic] = comparison.uncertain.get(topic, 0) + 1
            if len(comparison.first) < SHOWN:
                comparison.first.append(candidate)
        return comparison

    def _send(self, chunk: Sequence[Candidate], output: TransactionalOutput) -> None:
        """Send messages of all shards with one producer, which keeps the outbox's order."""
        readable = [candidate for candidate in chunk if candidate.unsendable is None]
        refused = self._refusals.found(
            [candidate.output for candidate in readable],
            [candidate.place for candidate in readable],
            UNKNOWN_BYTES,
        )
        refused += [
            Refused(candidate.place, candidate.id, candidate.output[0], candidate.unsendable)
            for candidate in chunk
            if candidate.unsendable is not None
        ]
        self._set_aside(refused)
        left_out = {one.place for one in refused}
        sendable = [candidate for candidate in readable if candidate.place not in left_out]
        if sendable:
            self._send_what_kafka_takes(sendable, output)

    def _send_what_kafka_takes(
        self, candidates: Sequence[Candidate], output: TransactionalOutput
    ) -> None:
        """Send messages; if Kafka refuses one, find it by bisecting and set it aside."""
        try:
            output.begin()
            produce_all(output, [candidate.output for candidate in candidates])
            self._commit(output)
        except DataRejected as error:
            [failure] = self._outputs.abort([output])
            if failure is not None:
                raise self._unfinished(failure) from failure
            if len(candidates) == 1:
                [one] = candidates
                reason = f"Kafka refuses it ({error})"
                self._set_aside([Refused(one.place, one.id, one.output[0], reason, one.output)])
                return
            half = len(candidates) // 2
            self._send_what_kafka_takes(candidates[:half], output)
            self._send_what_kafka_takes(candidates[half:], output)
        except TransactionError as error:
            raise self._unfinished(error) from error

    def _set_aside(self, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        if self._refusals.policy is OutboxRefusal.FAIL:
            raise RunError(refusal_of(refused[0], self._source))
        self._refusals.set_aside(refused, self._source)

    def _set_positions(self, output: TransactionalOutput, numbers: Sequence[int]) -> None:
        through = self._source.end()
        output.begin()
        for number in numbers:
            position = None
            if number >= self._shards:
                self._source.retire(number)
            else:
                found = self._source.found(number)
                position = RelayPosition(
                    source=found.source,
                    through=self._source.begin_behind(number, through),
                    within=0,
                    origin=found.origin,
                    turn=self._source.next_turn(number),
                    shards=self._shards,
                )
            entry = None if position is None else position.to_entry()
            output.produce(*self._journal.output(position_key(number), entry))
        try:
            self._commit(output)
        except DataRejected as error:
            raise self._unfinished(error) from error

    def _commit(self, output: TransactionalOutput) -> None:
        [result] = self._outputs.commit([Commit(output, [], None)])
        if isinstance(result.error, DataRejected):
            raise result.error
        if result.error is not None:
            raise self._unfinished(result.error) from result.error

    def _unfinished(self, error: TransactionError) -> RunError:
        return RunError(
            f"reconciling relay {self._name!r} was not finished ({error}); repeat it: what was "
            f"sent is found in Kafka"
        )


def _all_fit(entries: Mapping[int, RelayPosition], found: Mapping[int, DatabaseState]) -> bool:
    """Return whether there is a position for each shard and all belong to the current history."""
    shards = {position.shards for position in entries.values()}
    return (
        len(shards) == 1
        and set(entries) == set(range(shards.pop()))
        and all(fits(entries[number], found[number]) for number in entries)
    )


class _ByPosition:
    """Decides by the positions: messages after a shard's position were not sent.

    Part of the first transaction after a position may have been sent (`within`).
    """

    by = "position"

    def __init__(
        self, entries: Mapping[int, RelayPosition], candidates: Iterable[Candidate]
    ) -> None:
        self._entries = entries
        self._first: dict[int, int] = {}
        for candidate in candidates:
            shard = shard_of(candidate.lane, len(entries))
            if candidate.number > entries[shard].through:
                self._first.setdefault(shard, candidate.number)

    def was_sent(self, candidate: Candidate) -> bool:
        shard = shard_of(candidate.lane, len(self._entries))
        position = self._entries[shard]
        is_first = candidate.number == self._first.get(shard)
        return candidate.number <= position.through or (
            is_first and 0 < candidate.within <= position.within
        )

    def is_sure(self, candidate: Candidate) -> bool:
        return True


class _ByKafka:
    """Decides by Kafka: messages whose ids are not in their topics' logs were not sent."""

    by = "kafka"

    def __init__(self, sent: SentMessages) -> None:
        self._sent = sent

    def was_sent(self, candidate: Candidate) -> bool:
        return candidate.id in self._sent.ids

    def is_sure(self, candidate: Candidate) -> bool:
        topic, moment = candidate.output[0], candidate.output[6]
        return moment >= self._sent.removed_before.get(topic, 0)


_Judge = _ByPosition | _ByKafka


def described(candidates: Sequence[Candidate]) -> Iterator[dict[str, str | int | None]]:
    """Yield the fields of each message that the user sees."""
    for candidate in candidates:
        topic, _, key, *_rest = candidate.output
        yield {
            "number": candidate.number,
            "id": candidate.id,
            "topic": topic,
            "key": None if key is None else key.decode(errors="replace"),
            "published_at_milliseconds": candidate.output[6],
        }
