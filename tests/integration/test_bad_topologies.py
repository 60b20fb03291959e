"""A topology that cannot run starts nothing: one message says where, what and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.commands import Cluster, Folder

GOOD = """\
application: NAME
sources:
  numbers: {topic: NAME.in, value: json}
streams:
  copied:
    from: numbers
    to: [{topic: NAME.out, value: json}]
"""


class User:
    """Somebody with an application of their own, and a record in its input."""

    def __init__(self, bootstrap_servers: str, name: str, path: Path) -> None:
        self.name = name
        self.cluster = Cluster(bootstrap_servers)
        self.folder = Folder(path, bootstrap_servers)
        self.cluster.create(f"{name}.in", f"{name}.out")
        self.cluster.feed(f"{name}.in", b'{"n": 1}')

    def refusal(self, topology: str, *arguments: str) -> str:
        """Run a worker that must not start; return its message."""
        file = self.folder.write("app.yaml", topology.replace("NAME", self.name))
        done = self.folder.run("run-worker", file, "--until-caught-up", *arguments)
        assert done.exit_code == 2, done.err
        assert done.out == ""
        assert self.cluster.committed(self.name, f"{self.name}.in") is None
        assert self.cluster.end(f"{self.name}.out") == 0
        return done.error


@pytest.fixture
def user(kafka: Any, unique_name: Callable[[str], str], tmp_path: Path) -> User:
    return User(kafka.bootstrap_servers, unique_name("bad"), tmp_path)


def test_unknown_keys_are_named_with_their_places_and_the_closest_ones(user: User) -> None:
    error = user.refusal(GOOD.replace("from:", "form:").replace("value: json}\n", "valeu: json}\n"))
    assert "app.yaml:3:" in error
    assert "unknown-key: sources.numbers: unknown key 'valeu'" in error
    assert "app.yaml:6:5: unknown-key: streams.copied: unknown key 'form'" in error
    assert "did you mean 'value'?" in error


def test_functions_that_cannot_be_imported_are_all_named(user: User) -> None:
    steps = (
        '    steps: [{map_values: "nowhere_at_all:f"}, {map_values: "json:lods"}]\n    to: [{topic'
    )
    error = user.refusal(GOOD.replace("    to: [{topic", steps))
    assert "the topology has 2 errors" in error
    assert "app.yaml:7:26: import: 'nowhere_at_all:f' cannot be imported" in error
    assert "put its directory on PYTHONPATH" in error
    assert "module 'json' has no attribute 'lods'; did you mean 'loads'?" in error


def test_a_module_that_raises_when_imported_is_named_with_the_line(user: User) -> None:
    user.folder.write("broken.py", "x = 1\nraise KeyError('HOME_PAGE')\n")
    steps = '    steps: [{filter: "broken:f"}]\n    to: [{topic'
    error = user.refusal(GOOD.replace("    to: [{topic", steps))
    assert "importing module 'broken' raised KeyError: 'HOME_PAGE'" in error
    assert "broken.py:2" in error


def test_a_cycle_is_refused(user: User) -> None:
    error = user.refusal(
        GOOD.replace("from: numbers", "from: [numbers, again]") + "  again: {from: copied}\n"
    )
    assert "app.yaml:5:3: cycle: stream 'copied' reads its own output through 'again'" in error
    assert "Break the cycle" in error


def test_two_sinks_to_one_topic_are_refused(user: User) -> None:
    error = user.refusal(GOOD.replace("value: json}]", "value: json}, NAME.out]"))
    assert "duplicate-sink: stream 'copied' has two sinks to topic" in error
    assert f"'{user.name}.out'; every record would be written twice. Keep one" in error


def test_sources_that_are_not_co_partitioned_are_named_with_their_numbers(user: User) -> None:
    user.cluster.create(f"{user.name}.three", partitions=3)
    error = user.refusal(
        GOOD.replace("streams:", "  others: {topic: NAME.three, value: json}\nstreams:").replace(
            "from: numbers", "from: [numbers, others]"
        )
    )
    assert "the sources of sub-topology 'copied' are not co-partitioned" in error
    assert f"({user.name}.in=1, {user.name}.three=3)" in error
    assert "give them the same number" in error


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_missing_source_is_named_whatever_the_number_of_processes(
    user: User, processes: str
) -> None:
    error = user.refusal(GOOD.replace("NAME.in", "NAME.inn"), "--processes", processes)
    assert f"source topic {user.name}.inn does not exist" in error
    assert "correct the name in the topology, or create it" in error


def test_a_missing_output_is_named_and_apply_creates_it(user: User) -> None:
    topology = GOOD.replace("NAME.out", "NAME.other")
    error = user.refusal(topology)
    assert f"topic {user.name}.other does not exist; create what is missing" in error
    assert "eosframework apply" in error
    assert user.folder.run("apply", "app.yaml").exit_code == 0
    done = user.folder.run("run-worker", "app.yaml", "--until-caught-up")
    assert done.exit_code == 0, done.err
    assert user.cluster.committed(user.name, f"{user.name}.in") == 1


@pytest.mark.parametrize(
    "topology",
    [
        GOOD.replace("NAME.in,", "NAME.in, bootstrap_servers: 'other:9092',"),
        GOOD.replace("NAME.out,", "NAME.out, cluster: other,"),
        GOOD.replace("sources:", "clusters: {other: 'other:9092'}\nsources:"),
    ],
    ids=["source", "sink", "application"],
)
def test_input_and_output_on_different_clusters_are_refused_by_name(
    user: User, topology: str
) -> None:
    error = user.refusal(topology)
    assert "a transaction cannot span clusters" in error
    assert "cannot be exactly-once. Set kafka.bootstrap_servers" in error


def test_a_second_cluster_in_the_properties_is_refused_by_name(user: User) -> None:
    error = user.refusal(GOOD, "--set", "kafka.properties.bootstrap.servers=other:9092")
    assert "bootstrap.servers='other:9092' would break the guarantee" in error
    assert "a transaction cannot span clusters" in error


def test_a_second_cluster_in_python_is_refused(user: User) -> None:
    user.folder.write(
        "app.py",
        "from eosframework import Topology\n"
        f"app = Topology('{user.name}')\n"
        f"app.stream('{user.name}.in', bootstrap_servers='other:9092').to('{user.name}.out')\n",
    )
    done = user.folder.run("run-worker", "app.py")
    assert done.exit_code == 2
    assert "app.py:3: " in done.error
    assert "bootstrap_servers" in done.error


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ("zzzz.yaml", "topology file 'zzzz.yaml' does not exist; check the path"),
        ("ap.yaml", "topology file 'ap.yaml' does not exist; did you mean 'app.yaml'?"),
        ("nope.py", "topology file 'nope.py' does not exist"),
        ("empty.py", "declares no topology; expected app = eosframework.Topology(...) in it"),
        ("text.txt", "names no topology; expected a .yaml file, a .py file, file.py:attribute"),
        (".", "names no topology; expected a .yaml file, a .py file, file.py:attribute"),
        ("json:loads", "'json:loads' is a function; expected an eosframework.Topology"),
        ("json:nope", "module 'json' has no attribute 'nope'"),
        ("nowhere_at_all:app", "there is no module 'nowhere_at_all'"),
        ("torn.yaml", "torn.yaml:2:1: yaml: not valid YAML"),
        ("raising.py", "raising.py:1: ZeroDivisionError while the topology was declared"),
        ("latin1.yaml", "topology file 'latin1.yaml' is not UTF-8 text"),
    ],
)
def test_an_app_that_cannot_be_found_says_what_an_app_is(
    tmp_path: Path, app: str, message: str
) -> None:
    folder = Folder(tmp_path, "127.0.0.1:1")
    folder.write("app.yaml", GOOD)
    folder.write("empty.py", "")
    folder.write("text.txt", "")
    folder.write("torn.yaml", "sources: {a: [\n")
    folder.write("raising.py", "1 / 0\n")
    (tmp_path / "latin1.yaml").write_bytes(b"application: caf\xe9\n")
    done = folder.run("run-worker", app)
    assert done.exit_code == 2
    assert message in done.error
