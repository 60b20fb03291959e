"""Settings, properties and command lines that cannot be used: one message, and nothing starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eosframework.embedded import start_kafka
from tests.support.processes.commands import Cluster, Folder

TOPOLOGY = """\
application: settings
sources:
  numbers: {topic: settings.in, value: json}
streams:
  copied: {from: numbers, to: settings.out}
"""

SHORT = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.max.timeout.ms": "20000",
}


@pytest.fixture(scope="module")
def short_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that lets a transaction take 20 s at most, with a record to process."""
    embedded = start_kafka(tmp_path_factory.mktemp("short"), fast_start=True, properties=SHORT)
    try:
        cluster = Cluster(embedded.bootstrap_servers)
        cluster.create("settings.in", "settings.out")
        cluster.feed("settings.in", b'{"n": 1}')
        yield cluster
    finally:
        embedded.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder whose cluster cannot be reached: what is wrong must be found before that."""
    made = Folder(tmp_path, "127.0.0.1:1")
    made.write("app.yaml", TOPOLOGY)
    return made


@pytest.fixture
def on_broker(tmp_path: Path, short_broker: Cluster) -> Iterator[Folder]:
    made = Folder(tmp_path, short_broker.bootstrap_servers)
    made.write("app.yaml", TOPOLOGY)
    yield made
    assert short_broker.committed("settings", "settings.in") is None
    assert short_broker.end("settings.out") == 0


PROPERTY = "kafka.properties."


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("nonsense", "--set 'nonsense' is not SECTION.NAME=VALUE, for example worker."),
        ("worker.nope=1", "--set worker.nope: there is no such setting; see"),
        (
            "worker.commit_interval=1",
            "worker.commit_interval: there is no such setting; did you mean "
            "'commit_interval_seconds'?",
        ),
        ("nope.nope=1", "nope: there is no such setting; see `eosframework explain settings`"),
        (
            "worker.commit_interval_seconds=often",
            "--set worker.commit_interval_seconds='often': expected a valid number",
        ),
        (
            "worker.commit_interval_seconds=20",
            "commit_interval_seconds=20 leaves a transaction no reserve",
        ),
        ("worker.start=middle", "--set worker.start='middle': expected 'earliest' or 'latest'"),
        ("worker.instance=a/b", "--set worker.instance='a/b': expected text that matches"),
        ("kafka.bootstrap_servers=", "--set kafka.bootstrap_servers=None: expected text"),
        ("log.level=loud", "--set log.level='loud': expected text that matches"),
        (
            PROPERTY + "enable.idempotence=false",
            "enable.idempotence=False would break the guarantee: a transactional producer is "
            "always idempotent. Remove it",
        ),
        (
            PROPERTY + "isolation.level=read_uncommitted",
            "would break the guarantee: inputs are read read_committed",
        ),
        (PROPERTY + "transactional.id=x", "transactional.id='x' would break the guarantee"),
        (
            PROPERTY + "oauth_cb=tokens:get",
            "property oauth_cb takes a Python object, which configuration cannot give. Remove it; "
            "instead, set kafka.oauth_cb=module:function; or set sasl.oauthbearer.method=oidc",
        ),
        (PROPERTY + "lingre.ms=1", "has no property 'lingre.ms'; did you mean linger.ms?"),
        (PROPERTY + "security.protocol=x", "security.protocol='x' cannot be used: Invalid value"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_value(
    folder: Folder, assignment: str, message: str
) -> None:
    done = folder.run("run-worker", "app.yaml", "--set", assignment)
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.error


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("linger.ms=soon", "linger.ms='soon' cannot be used: Invalid value"),
        pytest.param("linger.ms=-4", "linger.ms=-4 cannot be used: ", marks=pytest.mark.exhaustive),
        pytest.param(
            "fetch.min.bytes=few",
            "fetch.min.bytes='few' cannot be used: Invalid value",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "socket.max.fails=5",
            "socket.max.fails=5 would break the guarantee",
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["producer", "producer range", "consumer", "protection"],
)
def test_a_property_of_one_kind_of_client_is_named_with_its_value(
    on_broker: Folder, assignment: str, message: str
) -> None:
    short = "worker.transaction_timeout_seconds=10"
    done = on_broker.run("run-worker", "app.yaml", "--set", PROPERTY + assignment, "--set", short)
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.error


def test_a_transaction_timeout_above_the_brokers_names_both(on_broker: Folder) -> None:
    done = on_broker.run("run-worker", "app.yaml", "--until-caught-up")
    assert done.exit_code == 2
    assert (
        "worker.transaction_timeout_seconds=30 is above the brokers' "
        "transaction.max.timeout.ms=20000 (20 s); lower the one or raise the other"
    ) in done.error


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that tells its clients an address without a host."""
    embedded = start_kafka(
        tmp_path_factory.mktemp("elsewhere"),
        fast_start=True,
        properties={"advertised.listeners": "PLAINTEXT://kafka-7.invalid:9092"},
    )
    try:
        yield embedded.bootstrap_servers
    finally:
        embedded.kill()


@pytest.mark.parametrize(
    "command",
    [
        *("run-worker app.yaml", "plan app.yaml", "doctor app.yaml", "audit app.yaml"),
        *("topics create settings.in", "txn hanging", "txn list", "status app.yaml"),
    ],
)
def test_an_advertised_name_that_does_not_resolve_is_named_by_every_command(
    elsewhere: str, tmp_path: Path, command: str
) -> None:
    made = Folder(tmp_path, elsewhere)
    made.write("app.yaml", TOPOLOGY)
    short = ("--set", "kafka.request_timeout_seconds=2", "--set", "kafka.start_timeout_seconds=2")
    done = made.run(*command.split(), *short)
    assert (done.exit_code, done.out) == (2, "")
    assert (
        f"a broker at {elsewhere} answered, and named kafka-7.invalid:9092 as the address of "
        f"broker 1, which does not resolve on this machine"
    ) in done.error
    assert "assume_transaction_verification" not in done.err


@pytest.mark.parametrize(
    "command",
    [
        "run-worker",
        "plan",
        pytest.param("apply", marks=pytest.mark.exhaustive),
        pytest.param("positions show", marks=pytest.mark.exhaustive),
        pytest.param("audit", marks=pytest.mark.exhaustive),
    ],
)
def test_an_unreachable_broker_is_named_and_waited_for_a_limited_time(
    folder: Folder, command: str
) -> None:
    short = ("--set", "kafka.request_timeout_seconds=1", "--set", "kafka.start_timeout_seconds=2")
    done = folder.run(*command.split(), "app.yaml", *short)
    assert (done.exit_code, done.out) == (2, "")
    assert "no broker at 127.0.0.1:1 answered within 1 s" in done.error
    assert "start one (`eosframework broker up`), or correct kafka.bootstrap_servers" in done.error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "config file settings.yaml cannot be read (No such file or directory)"),
        (b"- 1\n", "holds a list; expected the sections kafka, worker, "),
        (b"worker: 3\n", "config file settings.yaml: worker=3: expected settings by name"),
        (b"worker: {nope: 3}\n", "config file settings.yaml: worker.nope: there is no such"),
        (b"worker: : 3\n", "config file settings.yaml:1:9 is not valid YAML: "),
        (b"\xff\xfe", "config file settings.yaml is not UTF-8 text"),
        (b"kafka: {properties: {acks: 1}}\n", "property acks=1 would break the guarantee"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_named(
    folder: Folder, content: bytes | None, message: str
) -> None:
    if content is not None:
        (folder.path / "settings.yaml").write_bytes(content)
    done = folder.run("run-worker", "app.yaml", "--config", "settings.yaml")
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.error


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("EOS_WORKER__NOPE", "environment variable EOS_WORKER__NOPE, worker.nope: there is no"),
        ("EOS_WROKER__START", "EOS_WROKER__START is no setting; expected one that begins"),
        (
            "EOS_WORKER_START",
            "EOS_WORKER_START is no setting; did you mean EOS_WORKER__START, with two",
        ),
        ("EOS_WORKER__START", "environment variable EOS_WORKER__START, worker.start='x': expected"),
        ("EOS_WORKER", "an environment variable for a whole section is not JSON"),
    ],
)
def test_a_variable_that_means_a_setting_is_never_ignored(
    folder: Folder, variable: str, message: str
) -> None:
    done = folder.run("run-worker", "app.yaml", environment={variable: "x"})
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run-wroker app.yaml", "No such command 'run-wroker'"),
        ("run-worker", "Missing argument 'APP'; see `"),
        ("run-worker app.yaml more", "unexpected extra argument(s) (more)"),
        ("run-worker app.yaml --procesess 2", "No such option: --procesess"),
        ("run-worker app.yaml --processes 0", "Invalid value for '--processes'"),
        ("positions set app.yaml", "Missing argument 'POSITION...'"),
        ("positions set app.yaml settings.in=here", "'settings.in=here' is no position; expected"),
        ("broker up --nodes 2 --port 0 --data-dir none", "an embedded cluster has 1 node or 3"),
        ("broker up --port 99999", "Invalid value for '--port'"),
        ("explain errors NOPE", "there is no error 'NOPE' in the table"),
        ("describe app.yaml --format pdf", "'pdf' is not one of 'text', 'mermaid'"),
    ],
)
def test_a_wrong_command_line_gets_one_message(
    folder: Folder, arguments: str, message: str
) -> None:
    done = folder.run(*arguments.split())
    assert (done.exit_code, done.out) == (2, "")
    assert message in done.error


@pytest.mark.parametrize(
    "arguments",
    [
        "lint nope.yaml",
        "plan app.yaml --set worker.nope=1",
        "explain errors NOPE",
        "describe",
        "nope",
    ],
)
def test_a_failure_with_json_is_one_json_object(folder: Folder, arguments: str) -> None:
    done = folder.run(*arguments.split(), "--json")
    assert done.exit_code == 2
    assert done.json == {"error": done.error}
