"""What fills tables, and what carries an outbox, tell what the database and Kafka hold."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psycopg

from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.pipeline import wait_until
from tests.support.applications.tables import TablesWorld
from tests.support.verifiers.asked import (
    ANY_PORT,
    Scraped,
    addresses_of,
    get_json,
    wait_until_ready,
)


def test_what_fills_tables_tells_the_rows_that_are_in_them(
    make_tables: Callable[..., TablesWorld],
) -> None:
    tables = make_tables(partitions=2)
    tables.see("CREATE TABLE numbers (n bigint)")
    tables.apply()
    tables.feed(300)
    worker = tables.start_worker(settings=[f"worker.http_address={ANY_PORT}"])
    [address] = addresses_of(worker)
    wait_until_ready(address)
    wait_until(lambda: Scraped([address]).sum("rows_written_total", table="numbers") == 300, "rows")
    found = Scraped([address])
    assert found.sum("rows_written_total") == tables.count()
    assert found.sum("records_read_total", topic=tables.source) == 300
    assert found.sum("write_rows_sum") == 300
    assert found.sum("write_seconds_count") == found.sum("write_rows_count") > 0
    assert found.sum("database_retries_total") == 0
    tables.see(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND datname = current_database()"
    )
    tables.feed(300)
    wait_until(lambda: Scraped([address]).sum("database_retries_total") >= 1, "a retry")
    tables.wait_for(600)
    wait_until_ready(address)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert tables.count() == 600


def test_a_relay_tells_what_it_sent_and_what_waits(
    make_outbox: Callable[..., OutboxWorld],
) -> None:
    outbox = make_outbox(shards=2)
    outbox.publish(200, each=50)
    relay = outbox.start_relay(settings=[f"outbox.http_address={ANY_PORT}"])
    [address] = addresses_of(relay)
    wait_until_ready(address)

    def sent() -> float:
        return Scraped([address]).sum("records_written_total", topic=outbox.topic)

    wait_until(lambda: sent() == 200, "200 messages sent")
    assert Scraped([address]).sum("transaction_records_sum") == 200
    assert Scraped([address]).sum("tasks", state="running") == 2
    backlog = "outbox_backlog_messages"
    wait_until(lambda: bool(Scraped([address]).labels(backlog)), "a look at the backlog")
    wait_until(lambda: Scraped([address]).sum(backlog) == 0, "no backlog")
    assert get_json(address, "/status")[1]["messages"] == 200

    with psycopg.connect(outbox.dsn) as publishing, psycopg.connect(outbox.dsn) as late:
        # Nothing behind the number of an open transaction is final.
        outbox.publish_on(late, "k0")
        outbox.publish_on(publishing, "k1")
        publishing.commit()
        wait_until(lambda: Scraped([address]).sum(backlog) >= 1, "a backlog")
        wait_until(lambda: Scraped([address]).sum("outbox_backlog_seconds") > 0, "its age")
        late.commit()
    wait_until(lambda: sent() == 202, "the rest sent")
    wait_until(lambda: Scraped([address]).sum(backlog) == 0, "no backlog")
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0
