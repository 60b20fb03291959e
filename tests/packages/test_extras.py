"""Each extra of the wheel with the newest versions that it allows, in a clean environment.

This is what `pip install 'eosframework[EXTRA]'` gives a user today; the locks say nothing here.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.processes.environments import CleanEnvironment, build
from tests.support.processes.programs import REPOSITORY

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(2400)]

EXTRAS = set(
    tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
) - {"dev"}

FEED = """\
import sys
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(servers)
for made in admin.create_topics([NewTopic("lines", 2, 1)]).values():
    made.result(60)
producer = Producer(servers)
for number in range(100):
    producer.produce("lines", "to be or not to be", str(number))
assert producer.flush(60) == 0
"""

READ = """\
import sys
from eosframework.kafka import ReadCommittedConsumer

reader = ReadCommittedConsumer(
    {"bootstrap.servers": sys.argv[1], "group.id": "reader", "auto.offset.reset": "earliest"}
)
reader.subscribe([sys.argv[2]])
last, idle = {}, 0
while idle < 5:
    records = reader.consume(500, timeout=1)
    idle = 0 if records else idle + 1
    last |= {record.key().decode(): int(record.value()) for record in records}
reader.close()
print(sorted(last.items()))
"""

COUNTED = "[('be', 200), ('not', 100), ('or', 100), ('to', 200)]"

DRIVEN = """\
from eosframework import Topology
from eosframework.testing import TopologyTestDriver
{declarations}

driver = TopologyTestDriver(app)
driver.send("in", {value})
driver.run()
print([record.value for record in driver.read("out")])
"""

BATCHES = """\
import pyarrow as pa

def doubled(batch):
    return pa.record_batch({"n": [2 * n.as_py() for n in batch["n"]]})

app = Topology("batches")
app.stream("in", value="json").map_batch(doubled, schema={"n": "int64"}).to("out")
"""

SCHEMAS = """\
import json, pathlib
from eosframework import avro

fields = [{"name": "n", "type": "long"}]
schema = {"type": "record", "name": "Number", "fields": fields}
pathlib.Path("number.avsc").write_text(json.dumps(schema))

def same(value):
    return value

app = Topology("schemas")
numbers = app.stream("in", value=avro("number.avsc"))
numbers.map_values(same).to("out", value=avro("number.avsc"))
"""


SERVED = """\
import json, pathlib, subprocess, sys, urllib.request

command = [str(pathlib.Path(sys.executable).with_name("eosframework")), "console", "wordcount.py"]
console = subprocess.Popen([*command, "--address", "127.0.0.1:0"], stderr=subprocess.PIPE)
for line in console.stderr:
    if b"console_serving" in line:
        break
url = json.loads(line)["url"]
assets = ("console.css", "console.js", "icon.svg", "topology.js", "vendored/elk-worker.min.js")
for path in ("topology", *(f"assets/{name}" for name in assets)):
    with urllib.request.urlopen(url + path) as answer:
        content = answer.read()
    print(path, answer.status, b"topic lines" in content)
console.terminate()
print(console.wait())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))[0]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may read: as root, PostgreSQL runs as another one."""
    with TemporaryDirectory(prefix="packages-", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def with_extras(
    wheel: Path, directory: Path, *extras: str, python: str = sys.executable
) -> CleanEnvironment:
    """Install the wheel with extras, and put the word count next to it."""
    environment = CleanEnvironment.make(directory, python)
    environment.install(f"eosframework[{','.join(extras)}] @ {wheel.as_uri()}")
    shutil.copy(REPOSITORY / "examples" / "wordcount" / "wordcount.py", environment.work)
    (environment.work / "feed.py").write_text(FEED)
    (environment.work / "read.py").write_text(READ)
    return environment


@contextmanager
def broker(environment: CleanEnvironment) -> Iterator[str]:
    """A broker that the environment's `broker up` starts; yields its address."""
    place = ("--data-dir", str(environment.work / "kafka"))
    up = environment.eosframework("broker", "up", "--port", "0", "--json", *place)
    try:
        yield up.json["bootstrap_servers"]
    finally:
        environment.eosframework("broker", "down", *place)


@contextmanager
def database(environment: CleanEnvironment) -> Iterator[str]:
    """A PostgreSQL that the environment's `database up` starts; yields its DSN."""
    place = ("--data-dir", str(environment.work / "postgres"))
    up = environment.eosframework("database", "up", "--port", "0", "--json", *place)
    try:
        yield up.json["dsn"]
    finally:
        environment.eosframework("database", "down", *place)


def fed(environment: CleanEnvironment, servers: str) -> dict[str, str]:
    """Write the lines and create the topics of the word count; return the worker's variables."""
    done = environment.run("python", "feed.py", servers)
    assert done.exit_code == 0, done.err
    own = {"EOS_KAFKA__BOOTSTRAP_SERVERS": servers}
    environment.eosframework("apply", "wordcount.py", **own)
    return own


def counted(environment: CleanEnvironment, servers: str) -> str:
    done = environment.run("python", "read.py", servers, "counts")
    assert done.exit_code == 0, done.err
    return done.out.strip()


def driven(environment: CleanEnvironment, declarations: str, value: str) -> str:
    (environment.work / "driven.py").write_text(
        DRIVEN.format(declarations=declarations, value=value)
    )
    done = environment.run("python", "driven.py")
    assert done.exit_code == 0, done.err
    return done.out.splitlines()[-1]


def test_every_extra_is_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert {extra for extra in EXTRAS if f'place, "{extra}"' not in text} == set()


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_embedded_counts_words_on_its_own_broker(wheel: Path, place: Path, version: str) -> None:
    python = interpreter(version)
    environment = with_extras(wheel, place, "embedded", python=python)
    assert not environment.names() & {"numpy", "pandas"}
    with broker(environment) as servers:
        own = fed(environment, servers)
        environment.eosframework("run-worker", "wordcount.py", "--until-caught-up", **own)
        assert counted(environment, servers) == COUNTED


def interpreter(version: str) -> str:
    """An installed interpreter of a version."""
    if version == "{}.{}".format(*sys.version_info):
        return sys.executable
    found = shutil.which(f"python{version}") or ""
    others = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
    if python := next(map(str, others), found):
        return python
    pytest.skip(f"there is no Python {version}")


def test_postgres_publishes_through_an_outbox(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "postgres", "embedded")
    with broker(environment) as servers, database(environment) as dsn:
        own = fed(environment, servers) | {"EOS_DATABASE__DSN": dsn}
        environment.eosframework("relay-outbox", "--until-caught-up", **own)
        (environment.work / "publish.py").write_text(
            "import sys, psycopg\n"
            "from eosframework.postgres.outbox import publish\n"
            "with psycopg.connect(sys.argv[1]) as connection:\n"
            "    publish(connection, 'counts', 'published', b'7')\n"
        )
        assert environment.run("python", "publish.py", dsn).exit_code == 0
        environment.eosframework("relay-outbox", "--until-caught-up", **own)
        assert counted(environment, servers) == "[('published', 7)]"


@pytest.mark.spark
def test_spark_backfills_a_topic_with_the_locked_connector(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "spark", "embedded")
    with broker(environment) as servers:
        own = fed(environment, servers)
        ran = environment.eosframework("backfill", "run", "wordcount.py", "--job", "past", **own)
        assert "no checksums" not in ran.err
        environment.eosframework("backfill", "cutover", "wordcount.py", "--job", "past", **own)
        assert counted(environment, servers) == COUNTED


def test_demo_reads_its_flights(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "demo")
    program = "from eosframework.demo.feeds import count_of; print(count_of('flights'))"
    assert environment.run("python", "-c", program).out.strip() == "336776"


def test_arrow_processes_batches(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "arrow")
    assert driven(environment, BATCHES, '{"n": 21}') == "[{'n': 42}]"


def test_registry_uses_schemas(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "registry")
    assert driven(environment, SCHEMAS, '{"n": 42}') == "[{'n': 42}]"


def test_tracing_exports_spans(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "tracing", "embedded")
    with broker(environment) as servers:
        own = fed(environment, servers)
        traced = {"EOS_TRACING__ENABLED": "true", "OTEL_TRACES_EXPORTER": "console"}
        done = environment.eosframework(
            "run-worker", "wordcount.py", "--until-caught-up", **own, **traced
        )
        assert '"name": "process lines"' in done.out + done.err


def test_containers_loads_its_fixtures(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "containers")
    (environment.work / "conftest.py").write_text(
        'pytest_plugins = ["eosframework.testing.fixtures"]\n'
    )
    (environment.work / "test_one.py").write_text("def test_one(): pass\n")
    done = environment.run("pytest", "-q", "--eos-provider=containers")
    assert done.exit_code == 0, done.out
    imported = environment.run("python", "-c", "import eosframework.testing.containers")
    assert imported.exit_code == 0, imported.err


def test_web_serves_the_console(wheel: Path, place: Path) -> None:
    environment = with_extras(wheel, place, "web")
    nowhere = {"EOS_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    done = environment.run("python", "-c", SERVED, **nowhere)
    assert done.out.split("\n") == [
        "topology 200 True",
        "assets/console.css 200 False",
        "assets/console.js 200 False",
        "assets/icon.svg 200 False",
        "assets/topology.js 200 False",
        "assets/vendored/elk-worker.min.js 200 False",
        "0",
        "",
    ], (done.out, done.err)
