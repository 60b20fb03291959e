"""Requests to brokers through kafka-python: routed, retried within a deadline, explained."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, ConfigurationError, RunError, UserError
from eosframework.kafka.client.unanswered import resolve_failure, unreachable
from eosframework.kafka.inspect.configuration import client_configuration
from eosframework.kafka.inspect.vendor import (
    admin,
    compat,
    consumer_protocol,
    errors,
    inet,
    manager,
    selector,
    structs,
)
from eosframework.process.client_log import BOOTSTRAP
from eosframework.records import TopicPartition
from eosframework.txnid import TransactionalId

Answer = TypeVar("Answer")
Key = TypeVar("Key")

MOST_NAMED = 3
"""Most topics that a message names."""

SHARE = 0.6
"""Fraction of the request timeout for each call: a command makes several, and must fail within that
timeout."""

PAUSE_SECONDS = 0.1

_REFUSED = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)

_PASSING = (errors.RetriableError, errors.UnknownBrokerIdError)
"""Transient errors: brokers learn of a broker that left or joined at different times."""

_FAILED_CONNECTION = re.compile(r"Bootstrap connection to \S+ failed: (.+?)(?: \(backoff .*)?$")

_FAILED_LOOKUP = re.compile(
    r"DNS lookup failed for (?P<address>\S+:\d+), .*?gaierror\(-?\d+, '(?P<reason>[^']*)'\)"
)
_LOST_CONNECTION = re.compile(r"node_id=(\d+) .*Connection lost: .*DNS Resolution failure")

_LOG = logging.getLogger("kafka")
_LOG.addHandler(logging.NullHandler())


class Wire:
    """A kafka-python connection to one cluster, for requests that confluent_kafka lacks.

    Args:
        settings: how to reach the cluster.
        leases: tasks by leased id, so that messages about an id name its task.

    Raises:
        ConfigurationError: a property has no equivalent, or cannot be used.
        ClusterUnreachable: no broker answered.
    """

    def __init__(
        self, settings: KafkaSettings, leases: Mapping[str, TransactionalId] | None = None
    ) -> None:
        self.leases: Mapping[str, TransactionalId] = leases or {}
        self._settings = settings
        self._deadline_seconds = settings.request_timeout_seconds * SHARE
        self._complaint = _LastComplaint()
        _LOG.addHandler(self._complaint)
        try:
            configuration = client_configuration(settings)
            if tokens := configuration.get("sasl_oauth_token_provider"):
                tokens.token()  # first, because kafka-python would lose its error
            self._client = self._reach(configuration)
        except (errors.KafkaError, OSError, ValueError, ImportError) as error:
            _LOG.removeHandler(self._complaint)
            raise self._unreachable(error) from error
        except UserError:
            _LOG.removeHandler(self._complaint)
            raise

    def close(self) -> None:
        """Close the connections."""
        _LOG.removeHandler(self._complaint)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, what: str, needs: str, function: Callable[[], Answer]) -> Answer:
        """Return the result of `function`, retrying transient errors.

        Args:
            what: the step, for messages: "describing transactional id 'x'".
            needs: the required permission: "Describe on TransactionalId x".
            function: sends requests and raises kafka-python's errors.

        Raises:
            ConfigurationError: this principal may not do it.
            ClusterUnreachable: there was no answer within the deadline.
            RunError: the brokers answered with another error.
        """
        deadline = time.monotonic() + self._deadline_seconds
        self._complaint.unresolved = ""
        while True:
            try:
                return function()
            except errors.AuthorizationError as error:
                raise ConfigurationError(
                    f"{what}: this principal may not; allow it {needs}"
                ) from error
            except _REFUSED as error:
                raise self._unreachable(error) from error
            except _PASSING as error:
                if time.monotonic() + PAUSE_SECONDS > deadline:
                    if failure := self._complaint.unresolved:
                        servers = self._settings.bootstrap_servers
                        raise unreachable(servers, self._deadline_seconds, failure) from error
                    raise ClusterUnreachable(
                        f"{what}: no answer within {self._deadline_seconds:g} s "
                        f"({type(error).__name__}); are all brokers up?"
                    ) from error
                time.sleep(PAUSE_SECONDS)
            except errors.KafkaError as error:
                raise RunError(f"{what} failed: {type(error).__name__} ({error})") from error

    def call_for_existing(
        self,
        what: str,
        needs: str,
        partitions: Collection[TopicPartition],
        function: Callable[[Collection[TopicPartition]], Mapping[Key, Answer]],
    ) -> Mapping[Key, Answer]:
        """Call `function` for partitions, without those of topics that are deleted meanwhile.

        Args:
            what: the step without its object, for messages: "asking for the offsets of".
            needs: as for `call`.
            partitions: of any topics.
            function: as for `call`.
        """
        left = set(partitions)

        def ask() -> Mapping[Key, Answer]:
            try:
                return function(left) if left else {}
            except errors.UnknownTopicOrPartitionError:
                left.intersection_update(self.leaders({partition.topic for partition in left}))
                raise

        topics = sorted({partition.topic for partition in partitions})
        named = ", ".join(topics[:MOST_NAMED])
        more = len(topics) - MOST_NAMED
        rest = f" and {more} other topics" if more > 0 else ""
        return self.call(f"{what} {named}{rest}", needs, ask)

    def send(self, request: Any, broker_id: int | None = None) -> Any:
        """Return a broker's answer to one request; raises kafka-python's errors."""
        return self._client.ask(request, broker_id)

    def describe_producers(self, partitions: Collection[Any]) -> Any:
        """Return the leaders' state of each partition's producers; raises as `send`."""
        return self._client.describe_producers(partitions)

    def brokers(self) -> tuple[int, ...]:
        """Return the ids of the live brokers."""
        described: Any = self.call(
            "asking for the brokers", "Describe on the cluster", self._client.describe_cluster
        )
        live = (broker for broker in described["brokers"] if not broker.get("is_fenced"))
        return tuple(sorted(broker["broker_id"] for broker in live))

    def leaders(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, int | None]:
        """Return the leader of every partition of `topics`, or of all visible topics.

        A topic that does not exist has no partitions here; an offline partition has no leader.
        """
        wanted = None if topics is None else sorted(set(topics))
        if wanted == []:
            return {}
        described: Any = self.call(
            "asking for topics",
            "Describe on them",
            lambda: self._client.describe_topics(wanted),
        )
        for topic in described:
            if topic["error_code"] == errors.TopicAuthorizationFailedError.errno:
                raise ConfigurationError(
                    f"asking for topic {topic['name']!r}: this principal may not; allow it "
                    f"Describe on Topic {topic['name']}"
                )
        return {
            TopicPartition(topic["name"], partition["partition_index"]): (
                partition["leader_id"] if partition["leader_id"] >= 0 else None
            )
            for topic in described
            for partition in topic["partitions"]
        }

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition's log."""
        return self._offsets(
            dict.fromkeys(partitions, consumer_protocol.OffsetSpec.EARLIEST), stable=False
        )

    def high_watermarks(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition; none of a topic that was just deleted."""
        return self._offsets(
            dict.fromkeys(partitions, consumer_protocol.OffsetSpec.LATEST), stable=False
        )

    def last_stable_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition, as `high_watermarks`."""
        return self._offsets(
            dict.fromkeys(partitions, consumer_protocol.OffsetSpec.LATEST), stable=True
        )

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time; -1: there is none yet."""
        return self._offsets(times_ms, stable=False)

    def _offsets(
        self, specs: Mapping[TopicPartition, Any], *, stable: bool
    ) -> dict[TopicPartition, int]:
        if not specs:
            return {}
        levels = consumer_protocol.IsolationLevel
        level = levels.READ_COMMITTED if stable else levels.READ_UNCOMMITTED
        answers: Mapping[Any, Any] = self.call_for_existing(
            "asking for the offsets of",
            "Describe on these topics",
            specs.keys(),
            lambda existing: self._client.list_partition_offsets(
                {structs.TopicPartition(*each): specs[each] for each in existing},
                isolation_level=level,
            ),
        )
        return {TopicPartition(*partition): found.offset for partition, found in answers.items()}

    def _reach(self, configuration: dict[str, Any]) -> _Client:
        """Return a client of the first broker that answers, with a share of the time for each.

        Given all of them, kafka-python spends the whole time on one that hangs.
        """
        servers: list[str] = configuration.pop("bootstrap_servers")
        share_ms = max(round(self._deadline_seconds * 1000 / len(servers)), 10)
        # Half of a call's time, so that it is retried when its broker was just replaced.
        configuration["request_timeout_ms"] = max(round(self._deadline_seconds * 500), 10)
        for server in servers[:-1]:
            try:
                return _Client(server, share_ms, configuration)
            except errors.KafkaError:
                continue
        return _Client(servers[-1], share_ms, configuration)

    def _unreachable(self, error: Exception) -> UserError:
        servers = self._settings.bootstrap_servers
        if isinstance(error, (ValueError, ImportError, errors.KafkaConfigurationError)):
            return ConfigurationError(
                f"the brokers at {servers} cannot be reached with these kafka.properties: {error}; "
                f"correct them"
            )
        refused = isinstance(error, _REFUSED) or self._complaint.is_a_refusal()
        failure = self._complaint.text or (str(error) if refused else "")
        return unreachable(servers, self._deadline_seconds, failure, refused=refused)


class _Client(admin.KafkaAdminClient):
    """The admin client, extended to send any request to any broker.

    It takes its network and connections from here (`kafka_client`, a setting), because it has no
    public name for them.
    """

    def __init__(self, server: str, reach_ms: int, configuration: dict[str, Any]) -> None:
        made: list[Any] = []

        def connect(**given: Any) -> Any:
            network = selector.NetworkSelector(**given)
            connections = manager.KafkaConnectionManager(network, **given)
            made.extend((network, connections))
            return compat.KafkaNetClient(network, connections, **given)

        try:
            admin.KafkaAdminClient.__init__(
                self,
                bootstrap_servers=[server],
                bootstrap_timeout_ms=reach_ms,
                kafka_client=connect,
                proxy_url=f"{_ClosedSocket.SCHEMES[0]}://",
                **configuration,
            )
        except BaseException:
            if made:
                network, connections = made
                connections.close()
                network.close()
                network.stop()
            raise
        self.connections = made[1]

    def ask(self, request: Any, broker_id: int | None) -> Any:
        connections: Any = self.connections
        return connections.run(lambda: connections.send(request, node_id=broker_id))


class _ClosedSocket(inet.KafkaNetSocket):
    """Connects without a proxy, and closes a socket that does not get to connect.

    kafka-python, which finds the class by its scheme, leaves such a socket to the garbage
    collector.
    """

    SCHEMES = ("eosframework-direct",)

    async def sock_connect(self, net: Any, sock: Any, *address: Any, **given: Any) -> Any:
        try:
            return await inet.KafkaNetSocket.sock_connect(self, net, sock, *address, **given)
        except BaseException:
            sock.close()
            raise


class _LastComplaint(logging.Handler):
    """Keeps the reason of the last failed connection, which kafka-python only logs.

    Attributes:
        text: the reason of the last failed connection to a bootstrap server.
        unresolved: a broker's address without a host, in librdkafka's form; logged in two records.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = self.unresolved = ""
        self._failed_lookup: re.Match[str] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        lookup = self._failed_lookup
        if found := _FAILED_CONNECTION.search(message):
            self.text = found[1]
            if lookup and "DNS" in self.text:
                self.text = resolve_failure(lookup["address"], BOOTSTRAP, lookup["reason"])
        elif found := _FAILED_LOOKUP.search(message):
            self._failed_lookup = found
        elif (found := _LOST_CONNECTION.search(message)) and lookup:
            self.unresolved = resolve_failure(lookup["address"], found[1], lookup["reason"])

    def is_a_refusal(self) -> bool:
        return any(sign in self.text for sign in ("SSL", "Sasl", "Authentication", "Handshake"))
