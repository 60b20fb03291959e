"""Blocking admin requests, each within one deadline, with failures explained."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from eosframework.config import KafkaSettings
from eosframework.errors import ClusterUnreachable, EosError, StartRefused
from eosframework.kafka.client.background import discard_admin
from eosframework.kafka.client.properties import Role, client_properties, new_client
from eosframework.kafka.client.unanswered import UNANSWERED, unreachable
from eosframework.kafka.taxonomy import Call, Category, classify

Answer = TypeVar("Answer")
Key = TypeVar("Key")

_REFUSED = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
}
DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
"""Kind of the resource on which an ACL is missing, by code."""


def is_transient(error: KafkaError) -> bool:
    """Return whether brokers that answered may answer the same request otherwise in a moment.

    Examples are a cluster that has just started, moved a leader or created the topic.
    """
    if error.code() in UNANSWERED | {_UNKNOWN}:
        return False
    return classify(error, Call.COMMITTED).category is Category.RETRIABLE


ABSENCE_SECONDS = 1.0
"""A topic or partition that brokers deny for this long does not exist. They learn of a new one one
after the other, within 0.1 s on a busy machine (measured)."""

_TURN_SECONDS = 0.5
"""The longest delay until Ctrl-C takes effect."""

_FIRST_ANSWER_SECONDS = 0.5

_LOST_AFTER_SECONDS = 1.5
"""How long a request may go without an answer until it is asked whether its client is lost."""

_STUCK_AFTER_SECONDS = 4.0
"""After this long another client repeats a request, though the first one knows a broker."""

_UNKNOWN = KafkaError.UNKNOWN_TOPIC_OR_PART
_BROKEN = KafkaError._TRANSPORT  # noqa: SLF001

REQUEST_FAILED = (EosError, KafkaException)
"""Exceptions of a request that got no usable answer."""


class AccessDenied(StartRefused):
    """This principal may not even describe a resource.

    Args:
        message: the error message.
        kind: topic, group or cluster.
        name: of the resource; None: the cluster.
    """

    def __init__(self, message: str, kind: str, name: str | None) -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name


class ClientExchangedError(Exception):
    """A request's client had forgotten all brokers; send the request with the new one."""


class _Held:
    """The client of one thread; another thread may get it once this one has ended."""

    def __init__(self, idle: list[Any]) -> None:
        self._idle = idle
        self.last_error: KafkaError | None = None
        self.client: Any = None

    def take_idle(self) -> Any:
        """Take over the client of a thread that has ended; None: there is none."""
        with suppress(IndexError):
            self.client = self._idle.pop()
        return self.client

    def __del__(self) -> None:
        if self.client is not None:
            self._idle.append(self.client)


class _OfThread(threading.local):
    """The client of the calling thread."""

    def __init__(self, idle: list[Any]) -> None:
        self.held = _Held(idle)


class AdminRequests:
    """Sends admin requests to one cluster; raises ClusterUnreachable on a timeout.

    Each thread has a client of its own: a request without an answer discards its client, on which
    no other thread may wait.

    A request that follows an unanswered one uses a new client: a librdkafka client whose idle
    connection broke may not reconnect for a request to a group coordinator, however often it is
    sent, until another of its connections changes (seen in 2.16).
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._deadline_seconds = settings.request_timeout_seconds
        self._of_thread = _OfThread([])
        self._has_several_brokers = False

    @property
    def _client(self) -> Any:
        """The thread's client, typed Any because the stubs leave the futures' results open."""
        held = self._of_thread.held
        if held.client is None and held.take_idle() is None:
            held.client = self._new_client()
        return held.client

    def _new_client(self) -> Any:
        """Return a client that knows a broker, if one answers soon.

        1. the only broker stands still, and the controller fences it  2. it resumes, and answers
        the first request for metadata before it is unfenced: there is no broker  3. librdkafka
        forgets all brokers, bootstrap.servers included, and looks for none again. So a client that
        begins like this is exchanged.
        """
        properties = self._properties()
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            client = new_client(AdminClient, properties)
            if not _knows_none(client) or time.monotonic() > deadline:
                return client
            discard_admin(client)
            time.sleep(0.1)

    def _properties(self) -> dict[str, Any]:
        return {**client_properties(self._settings, Role.ADMIN), "error_cb": self._remember}

    def _request(self, call: Callable[[float], Future[Answer]]) -> Answer:
        """Return the single answer of a call that gets a timeout in seconds."""
        return self._request_each(lambda timeout: {None: call(timeout)})[None]

    def _first_answer(self, ask: Callable[[Any, float], Answer]) -> Answer:
        """Return the answer to a blocking call of the client.

        Args:
            ask: calls a client with a timeout in seconds.
        """
        deadline = time.monotonic() + self._deadline_seconds
        while (left := deadline - time.monotonic()) > 0:
            with suppress(KafkaException):
                return ask(self._client, min(left, _TURN_SECONDS))
            self._client.poll(0)
            if not knows_broker(self._client):
                self._exchange()
        raise self._unreachable()

    def _request_each(
        self,
        call: Callable[[float], Mapping[Key, Future[Any]]],
        absent: Sequence[int] = (),
        instead: Mapping[int, Any] | None = None,
    ) -> dict[Key, Any]:
        """Return the answer for each key; None for a key whose error code is in `absent`.

        Args:
            call: sends the request, with a timeout in seconds.
            absent: error codes that mean that there is no such object.
            instead: replacement values for other error codes.
        """
        instead = {**dict.fromkeys(absent), **(instead or {})}
        began_at = time.monotonic()
        deadline = began_at + self._deadline_seconds
        while True:
            answers: dict[Key, Any] = {}
            key: Key | None = None
            is_denied = False
            try:
                for key, future in call(self._deadline_seconds).items():
                    try:
                        answers[key] = self._result(future, deadline)
                    except KafkaException as error:
                        if error.args[0].code() not in instead:
                            raise
                        answers[key] = instead[error.args[0].code()]
                        is_denied |= error.args[0].code() == _UNKNOWN
                if not (is_denied and self._others_may_know(began_at)):
                    return answers
                time.sleep(0.05)
            except ClientExchangedError:
                continue
            except KafkaException as error:
                if not self._is_passing(error.args[0], began_at):
                    raise self._explained(error, about=key) from error
                time.sleep(0.1)
                self._look_for_leaders(deadline)

    def _is_passing(self, error: KafkaError, began_at: float) -> bool:
        """Return whether the same request may be answered otherwise before its deadline.

        A connection that broke below a request may be back at once: a broker was restarted, or
        replaced under the same number.
        """
        if error.code() == _UNKNOWN:
            return self._others_may_know(began_at)
        may_pass = error.code() == _BROKEN or is_transient(error)
        return may_pass and time.monotonic() <= began_at + self._deadline_seconds

    def _others_may_know(self, began_at: float) -> bool:
        """Return whether a topic that one broker denies may exist.

        One process creates a topic. A request of it, or of another process, goes to a broker that
        has not read of the topic in the metadata log yet, and is answered that there is none.
        """
        if time.monotonic() >= began_at + ABSENCE_SECONDS:
            return False
        if not self._has_several_brokers:
            # Only brokers that run are listed, so one may be alone for a while. `describe_cluster`
            # would wait for a controller that has died.
            try:
                brokers = self._client.list_topics(timeout=ABSENCE_SECONDS).brokers
            except KafkaException:
                return True
            self._has_several_brokers = len(brokers) > 1
        return self._has_several_brokers

    def _look_for_leaders(self, deadline: float) -> None:
        """Refresh the metadata: librdkafka's ListOffsets keeps sending an old leader epoch."""
        with suppress(KafkaException):
            self._client.list_topics(timeout=max(deadline - time.monotonic(), 0.1))

    def _result(self, future: Future[Answer], deadline: float) -> Answer:
        """Wait for an answer, and serve librdkafka's log and error callbacks meanwhile.

        A client that knows brokers may send a request to none, as it does for one to a coordinator
        on a cluster that has just started (seen in 2.16). So a request is repeated by another
        client, which waits as long as those before it together: one that takes long is answered.
        """
        ask_at = time.monotonic() + _LOST_AFTER_SECONDS
        waited = time.monotonic() - (deadline - self._deadline_seconds)
        stuck_at = time.monotonic() + max(waited, _STUCK_AFTER_SECONDS)
        while not future.done():
            if time.monotonic() > deadline + 1:
                raise self._unreachable()
            wait([future], timeout=0.05)
            self._client.poll(0)
            if time.monotonic() > ask_at and not future.done():
                is_stuck = time.monotonic() > stuck_at
                if (is_stuck or not knows_broker(self._client)) and self._exchange():
                    raise ClientExchangedError
                ask_at = time.monotonic() + _LOST_AFTER_SECONDS
        return future.result()

    def _exchange(self) -> bool:
        """Exchange a client that gets no answer for one that knows a broker; return whether it was.

        The client may forget all brokers between two requests as well (see `_new_client`); then it
        sends nothing. On a connection that hangs a request may have been sent, and take effect: so
        each request here may be repeated, and takes what exists, or is gone, for done.
        """
        held = self._of_thread.held
        lost = self._client
        new = new_client(AdminClient, self._properties())
        if not knows_broker(new):
            discard_admin(new)
            return False
        held.client = new
        discard_admin(lost)
        return True

    def _remember(self, error: KafkaError) -> None:
        """Keep the last error that has a cause; librdkafka calls this on the thread that polls."""
        held = self._of_thread.held
        # Follows the error of the last connection, such as a refused password, and hides it.
        is_sum = error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
        if held.last_error is None or not is_sum:
            held.last_error = error

    def _explained(self, error: KafkaException, about: object = None) -> Exception:
        """Return the user's error for a failed request about a topic or a group."""
        if kind := DENIED.get(error.args[0].code()):
            return _denied(kind, about)
        codes = {error.args[0].code()}
        if (last := self._of_thread.held.last_error) is not None:
            codes.add(last.code())
        if codes & UNANSWERED:
            return self._unreachable()
        if is_transient(error.args[0]):
            request = "a request" if about is None else f"a request about {about}"
            return ClusterUnreachable(
                f"the brokers at {self._settings.bootstrap_servers} did not serve {request} within "
                f"{self._deadline_seconds:g} s ({error.args[0].name()}): they start, or partitions "
                f"move. Run the command again, or increase kafka.request_timeout_seconds"
            )
        return error

    def _unreachable(self) -> ClusterUnreachable:
        held = self._of_thread.held
        if held.client is not None:
            held.client.poll(0)
            discard_admin(held.client)
            held.client = None
        last, held.last_error = held.last_error, None
        failure = (last.str() or "") if last else ""
        refused = last is not None and (last.code() in _REFUSED or "SSL" in failure)
        servers = self._settings.bootstrap_servers
        return unreachable(servers, self._deadline_seconds, failure, refused=refused)


def _knows_none(client: Any) -> bool:
    try:
        return not client.list_topics(timeout=_FIRST_ANSWER_SECONDS).brokers
    except KafkaException as error:
        # The request that follows explains any other failure.
        return error.args[0].code() == KafkaError._PARTIAL  # noqa: SLF001


def knows_broker(client: Any) -> bool:
    """Return whether a client gets an answer that names a broker, soon."""
    with suppress(KafkaException):
        return bool(client.list_topics(timeout=_FIRST_ANSWER_SECONDS).brokers)
    return False


def _denied(kind: str, about: object) -> AccessDenied:
    name: str | None = None
    if kind == "cluster":
        what, needed = "the cluster", "Describe and DescribeConfigs on the cluster"
    else:
        name = str(getattr(about, "topic", None) or getattr(about, "name", None) or about)
        what = f"{kind} {name!r}"
        needed = f"Describe on {what}"
    return AccessDenied(
        f"{what} may not be described by this principal; grant {needed} "
        f"(`eosframework plan APP --acls`, run by a principal that may, lists every ACL that a "
        f"worker needs)",
        kind,
        name,
    )
