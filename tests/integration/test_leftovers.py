"""The guard of tests/support/processes/leftovers.py, beside real servers."""

from __future__ import annotations

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from tests.conftest import KafkaService, PostgresService

SERVICES = """
import pytest
from tests.support.processes.leftovers import guard_of

@pytest.fixture(scope="session")
def broker(request):
    with guard_of(request.config).topics.watched({broker!r}, whole=True):
        yield {broker!r}

@pytest.fixture(scope="session")
def server(request):
    with guard_of(request.config).databases.watched({server!r}, whole=True):
        yield {server!r}
"""

TOPICS = """
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.processes.leftovers import guard_of

def make(broker, name):
    admin = AdminClient({{"bootstrap.servers": broker}})
    admin.create_topics([NewTopic(name, 1)])[name].result(60)

def test_leaving(broker):
    make(broker, {left!r})

def test_deleting(broker, request):
    make(broker, {name!r} + ".in")
    guard_of(request.config).topics.delete([{name!r}])

def test_leaving_at_the_end(broker):
    make(broker, {last!r})
"""

DATABASES = """
from eosframework.postgres.database.scratch import create_database, drop_database

def test_leaving(server):
    create_database(server)

def test_dropping(server):
    drop_database(server, create_database(server))
"""


def test_a_test_that_leaves_a_topic_fails_and_names_it(
    kafka: KafkaService, own_names: list[str], topic_name: str, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(SERVICES.format(broker=kafka.bootstrap_servers, server=""))
    left, last = f"left.{topic_name}", f"last.{topic_name}"
    own_names.append(last)  # The guard of that suite sees its broker go before it could delete it.
    pytester.makepyfile(TOPICS.format(name=topic_name, left=left, last=last))
    done = run(pytester)
    done.assert_outcomes(passed=3, errors=2)
    done.stdout.fnmatch_lines([f"*topic {left}", f"*topic {last}"])
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30)
    assert left not in topics.topics


def test_a_test_that_leaves_a_database_fails_and_names_it(
    postgres: PostgresService, pytester: pytest.Pytester
) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        before = connection.execute("SELECT datname FROM pg_database").fetchall()
    pytester.makeconftest(SERVICES.format(broker="", server=postgres.dsn))
    pytester.makepyfile(DATABASES)
    done = run(pytester)
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["*this test left behind:", "*database *"])
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT datname FROM pg_database").fetchall() == before


def run(suite: pytest.Pytester) -> pytest.RunResult:
    return suite.runpytest_inprocess(
        "-p", "tests.support.processes.leftovers", "-p", "no:cacheprovider"
    )
