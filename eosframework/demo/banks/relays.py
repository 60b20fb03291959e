"""The outbox relays of a bank: one active, one standby; a killed one is replaced."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eosframework.demo.kills import Kill
from eosframework.demo.services import Service
from eosframework.demo.workers import Duty

RELAYS = 2


@dataclass(slots=True)
class _Relay:
    """A running relay and its shards."""

    service: Service
    duty: Duty = field(init=False)
    is_up: bool = False

    def __post_init__(self) -> None:
        self.duty = Duty(self.service.pid)

    def read_log(self) -> None:
        """Update its shards from new log events."""
        for event in self.service.new_events():
            match event.get("event"):
                case "shard_assigned":
                    id_ = event["transactional_id"]
                    self.duty.take(id_, id_, event["timestamp"])
                    self.is_up = True
                case "relay_stands_by":
                    self.is_up = True
                case "database_unavailable" | "shard_given_up":
                    self.duty.tasks.clear()
                case _:
                    pass


class Relays:
    """Two processes of `eosframework relay-outbox`, which end with this process in any case.

    Args:
        bank: name of the outbox.
        bootstrap_servers: cluster of its topic.
        directory: of their logs.
        environment: settings that must not appear in the command line.
    """

    def __init__(
        self, bank: str, bootstrap_servers: str, directory: Path, environment: Mapping[str, str]
    ) -> None:
        self.deaths_seen = 0
        self._bank = bank
        self._arguments = ["relay-outbox", "--set", f"outbox.name={bank}"]
        self._arguments += ["--set", f"kafka.bootstrap_servers={bootstrap_servers}"]
        self._directory = directory
        self._environment = environment
        self._relays: list[_Relay] = []
        for number in range(RELAYS):
            self._relays.append(self._started(number))

    def require_running(self) -> None:
        """Check that all relays run.

        Raises:
            ComponentFailed: one ended; with its exit code and last log lines.
        """
        for relay in self._relays:
            relay.service.require_running()

    def kill_one(self) -> Kill | None:
        """SIGKILL the active relay and start another; None if none is active."""
        for number, relay in enumerate(self._relays):
            relay.read_log()
            if relay.duty.is_at_work:
                self.deaths_seen += relay.service.end() == -signal.SIGKILL
                kill = Kill(relay.duty.pid, self._name(number), tuple(relay.duty.tasks))
                self._relays[number] = self._started(number)
                return kill
        return None

    def are_up(self) -> bool:
        """Return whether all have found their database; one that starts without it would end."""
        for relay in self._relays:
            relay.read_log()
        return all(relay.is_up for relay in self._relays)

    def stop(self) -> None:
        """SIGTERM all of them and wait until they have ended.

        Raises:
            ComponentFailed: one did not end in time, or failed.
        """
        for relay in self._relays:
            relay.service.ask_to_stop()
        for relay in self._relays:
            relay.service.stop()

    def end(self) -> None:
        """Kill all remaining processes."""
        for relay in self._relays:
            relay.service.end()

    def _started(self, number: int) -> _Relay:
        log_file = self._directory / f"{self._bank}.relay{number}.log"
        name = self._name(number)
        return _Relay(Service(name, self._arguments, log_file, self._environment))

    def _name(self, number: int) -> str:
        return f"relay {number} of {self._bank}"
