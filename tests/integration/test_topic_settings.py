"""Topics that eosframework makes on brokers whose defaults would break the guarantee, or time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eosframework.application.context import connect_to
from eosframework.application.provision import apply
from eosframework.application.topic_settings import TopicRole, deviations, settings_at_creation
from eosframework.config import KafkaSettings, Settings
from eosframework.embedded import start_kafka
from tests.support.applications.feeding import feeder
from tests.support.applications.pipeline import read_committed
from tests.support.processes.commands import Cluster, Folder, here
from tests.support.processes.programs import Finished
from tests.support.processes.waiting import wait_until
from tests.support.servers.kafka_admin import NewTopic
from tests.support.servers.topics import configure, create_topics

HOSTILE = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleanup.policy": "compact,delete",
    "log.retention.ms": "60000",
    "log.retention.bytes": "1",
    "log.cleaner.delete.retention.ms": "0",
    "log.message.timestamp.after.max.ms": "3600000",
    "unclean.leader.election.enable": "true",
}
"""Defaults of brokers: each breaks something in a topic that inherits it."""

USERS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
}
"""What the owner of an input or output has stated."""

COUNTED = """\
application: NAME
sources:
  seen:
    topic: NAME.in
    value: json
streams:
  counted:
    from: seen
    steps:
      - group_by: {by: "functions:by_name", key: string}
      - count: {store: counts, window: {tumbling: 1m}, emit: commit}
    to: {topic: NAME.out, value: json}
"""
FUNCTIONS = """\
def by_name(record):
    return record.value["name"]

def charge(value, effect):
    return value
"""
EVERY_ROLE = """\
application: NAME
sources:
  seen:
    topic: NAME.in
    value: json
    on_error: {dead_letter: NAME.dead, retry: [1s]}
streams:
  counted:
    from: seen
    steps:
      - group_by: {by: "functions:by_name", key: string}
      - count: {store: counts}
    to: {topic: NAME.out, value: json}
  copied: {from: seen, steps: [{filter: "builtins:bool"}], to: [{table: copied}]}
  charged:
    from: seen
    steps: [{call_once: {call: "functions:charge", on_doubt: retry}}]
    to: {topic: NAME.out, value: json}
"""


class Application:
    """An application that counts by the minute, on a cluster with such defaults."""

    def __init__(self, servers: str, name: str, path: Path) -> None:
        self.name, self.cluster, self.folder = name, Cluster(servers), Folder(path, servers)
        self.folder.write("functions.py", FUNCTIONS)
        self.folder.write("app.yaml", COUNTED.replace("NAME", name))
        topics = [NewTopic(f"{name}.{short}", 1, 1, config=USERS) for short in ("in", "out")]
        create_topics(self.cluster.admin, topics)

    def feed(self, *times_ms: int, size: int = 1) -> None:
        producer = feeder(self.cluster.bootstrap_servers)
        for time_ms in times_ms:
            value = json.dumps({"name": "n" * size}).encode()
            producer.produce(f"{self.name}.in", value, timestamp=time_ms)
        assert producer.flush(60) == 0

    def run(self) -> Finished:
        assert self.here("apply").exit_code == 0
        return self.folder.run("run-worker", "app.yaml", "--until-caught-up")

    def here(self, command: str, *arguments: str) -> Finished:
        app = str(self.folder.path / "app.yaml")
        servers = f"kafka.bootstrap_servers={self.cluster.bootstrap_servers}"
        return here(command, app, "--set", servers, *arguments)

    def windows(self) -> list[str]:
        """The starts of the windows in the output, each once."""
        written = read_committed(self.cluster.bootstrap_servers, f"{self.name}.out")
        return sorted({json.loads(record.value() or b"")["start"] for record in written})


def minutes_ago(minutes: int) -> int:
    return round(time.time() * 1000) - minutes * 60_000


HALF_AN_HOUR = [*range(65, 35, -1)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that replaces event times."""
    properties = {**HOSTILE, "log.message.timestamp.type": "LogAppendTime"}
    cluster = start_kafka(tmp_path_factory.mktemp("append"), fast_start=True, properties=properties)
    try:
        yield cluster.bootstrap_servers
    finally:
        cluster.kill()


@pytest.fixture
def app(servers: str, unique_name: Callable[[str], str], tmp_path: Path) -> Application:
    return Application(servers, unique_name("stated"), tmp_path)


@pytest.mark.exhaustive
def test_windows_are_those_of_the_event_times_where_brokers_would_replace_them(
    app: Application,
) -> None:
    """They were one window of now."""
    app.feed(*map(minutes_ago, HALF_AN_HOUR))
    done = app.run()
    assert done.exit_code == 0, done.err
    assert len(app.windows()) == len(HALF_AN_HOUR), app.windows()
    assert "output_deleted_soon" not in done.err


def test_old_event_times_are_processed_where_brokers_would_refuse_them(
    unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The worker's own changelog refused them, for which a record was blamed."""
    properties = {**HOSTILE, "log.message.timestamp.before.max.ms": "120000"}
    cluster = start_kafka(tmp_path / "data", fast_start=True, properties=properties)
    try:
        (tmp_path / "user").mkdir()
        app = Application(cluster.bootstrap_servers, unique_name("old"), tmp_path / "user")
        app.feed(*map(minutes_ago, HALF_AN_HOUR))
        done = app.run()
        assert done.exit_code == 0, done.err
        assert len(app.windows()) == len(HALF_AN_HOUR), app.windows()
    finally:
        cluster.kill()


def test_every_topic_that_is_made_states_what_is_required_of_it(app: Application) -> None:
    """Of every role; and what a start compares is what it was created with."""
    app.folder.write("app.yaml", EVERY_ROLE.replace("NAME", app.name))
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=app.cluster.bootstrap_servers),
    )
    context = connect_to(str(app.folder.path / "app.yaml"), settings)
    planned, _ = apply(context)
    made = {topic.name: topic.role for topic in planned.topics if topic.create}
    own = set(TopicRole) - {TopicRole.SOURCE, TopicRole.SINK}
    assert set(made.values()) - {TopicRole.SINK} == own
    for name, found in context.admin.describe_topics(made).items():
        role = made[name]
        if role in own:
            assert not list(deviations(name, role, found))
            stated = settings_at_creation(role).items()
            assert {n: v for n, v in stated if (found.values or {})[n] != v}.keys() <= {
                "delete.retention.ms"
            }


def test_a_setting_that_was_changed_afterwards_stops_the_next_start_and_the_doctor_says_the_same(
    app: Application,
) -> None:
    app.feed(minutes_ago(60))
    assert app.run().exit_code == 0
    admin, changelog = app.cluster.admin, f"{app.name}-counts-changelog"
    changes = {
        f"{app.name}-ownership": ("cleanup.policy", "delete", "compact"),
        f"{app.name}-control": ("delete.retention.ms", "0", "at least 3600000"),
        changelog: ("message.timestamp.type", "LogAppendTime", "CreateTime"),
        f"{app.name}-counted-repartition": ("retention.bytes", "1000", "-1"),
    }
    for topic, (setting, value, expected) in changes.items():
        configure(admin, topic, {setting: value})
        refused = app.here("run-worker")
        assert refused.exit_code == 2, refused.err
        for said in (f"topic {topic!r} has {setting}={value}, expected {expected}", "--add-config"):
            assert said in refused.error
        findings = app.here("doctor", "--json").json["findings"]
        (found,) = (f for f in findings if f["about"] == f"topic {topic}" and value in f["found"])
        assert (found["severity"], f"{setting}={value}" in found["found"]) == ("error", True)
        stated = f"--add-config {setting}="
        restored = refused.error.partition(stated)[2].split()[0].rstrip(".")
        configure(admin, topic, {setting: restored})
    assert app.run().exit_code == 0


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("message.timestamp.before.max.ms", "60000", "internal topic"),
        pytest.param(
            "max.message.bytes", "400", "Raise max.message.bytes of", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_record_is_not_blamed_where_an_internal_topic_refuses_its_own(
    app: Application, setting: str, value: str, said: str
) -> None:
    """Its setting was changed while the worker ran, so no start could compare it."""
    app.feed(minutes_ago(60))
    topic, log = f"{app.name}-counts-changelog", app.folder.path / "worker.log"
    assert app.here("apply").exit_code == 0
    worker = app.folder.start("run-worker", "app.yaml", log=log)
    try:
        wait_until(lambda: bool(app.windows()), "the first window")
        configure(app.cluster.admin, topic, {setting: value})
        app.feed(minutes_ago(30), size=800)
        assert worker.wait(60) == 1
    finally:
        worker.kill()
        worker.wait()
    error = log.read_text().strip().splitlines()[-1]
    assert said in error, error
    assert topic in error
    assert setting.partition(".before")[0] in error
    assert "skip" not in error


def test_outputs_that_retention_deletes_soon_are_warned_of_once_with_both_times(
    app: Application,
) -> None:
    """By `plan` and `apply` from the next records, and by the worker from what it writes."""
    output, month = f"{app.name}.out", 30 * 24 * 60
    configure(app.cluster.admin, output, {"retention.ms": "604800000"})
    app.feed(*[minutes_ago(month)] * 50)
    day = (datetime.now(UTC) - timedelta(days=30)).date().isoformat()
    since = (datetime.now(UTC) - timedelta(days=7)).date().isoformat()
    for report in (app.here("plan").out, app.here("apply").err):
        (warning,) = (line for line in report.splitlines() if f"topic {output} has" in line)
        assert "retention.ms=604800000" in warning
        assert day in warning
        assert since in warning
    done = app.run()
    assert done.exit_code == 0, done.err
    warned = [json.loads(line) for line in done.err.splitlines() if "output_deleted_soon" in line]
    assert [entry["topic"] for entry in warned] == [output]
    assert (day in warned[0]["event_time"], since in warned[0]["kept_since"]) == (True, True)
