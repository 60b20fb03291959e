"""Pages about backfills, tables and relays while these run, and an abort by hand in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eosframework.config import KafkaSettings
from eosframework.kafka.inspect.wire import Wire
from eosframework.records import TopicPartition
from tests.conftest import KafkaService
from tests.support.applications.outbox import OutboxWorld
from tests.support.applications.pipeline import wait_until
from tests.support.applications.spark_jobs import RECORDS, SparkJob
from tests.support.applications.tables import BOTH_KINDS, TablesWorld
from tests.support.faults.hanging import write_unannounced
from tests.support.processes.browser import Browser
from tests.support.processes.commands import Cluster
from tests.support.processes.consoles import running_console
from tests.support.verifiers.asked import ANY_PORT, addresses_of

pytestmark = pytest.mark.exhaustive

TOKEN = "a token of sixteen characters"

TOPOLOGY = """\
application: shop
sources: {orders: {topic: orders, key: bytes, value: json}}
streams: {kept: {from: orders, to: [{topic: kept, value: json}]}}
"""


def press_on(browser: Browser, selector: str) -> None:
    """Focus what a selector finds, and press Enter on it, as a user without a mouse does."""
    browser.run("document.querySelector(arguments[0]).focus()", selector)
    browser.press("Enter")


def test_a_hanging_transaction_is_ended_by_a_user_who_signs_in_reads_the_plan_and_agrees(
    unprotected: KafkaService, browser: Browser, tmp_path: Path
) -> None:
    cluster = Cluster(unprotected.bootstrap_servers)
    cluster.create("orders", "kept")
    with Wire(KafkaSettings(bootstrap_servers=unprotected.bootstrap_servers)) as wire:
        write_unannounced(wire, TopicPartition("orders", 0), b'{"n": 1}')
    cluster.feed("orders", b'{"n": 2}')
    assert cluster.stable_end("orders") == 0, "the hanging transaction holds readers back"
    topology = tmp_path / "shop.yaml"
    topology.write_text(TOPOLOGY)
    settings = [f"kafka.bootstrap_servers={unprotected.bootstrap_servers}"]
    settings.append("console.refresh_seconds=0.5")
    plan_link = "a[href^='/changes/end']"
    with running_console(tmp_path, topology, settings=settings) as reader:
        browser.open(f"http://{reader.address}/transactions")
        browser.wait_for("orders[0]: end it with")
        assert browser.run("return document.querySelector(arguments[0])", plan_link) is None
    with running_console(
        tmp_path,
        topology,
        "--allow-changes",
        settings=settings,
        environment={"EOS_CONSOLE__TOKEN": TOKEN},
    ) as console:
        browser.open(f"http://{console.address}/transactions")
        browser.wait_for("Sign in")
        for character in TOKEN:
            browser.press(character)
        browser.press("Enter")
        browser.wait_for("plan its end")
        press_on(browser, plan_link)
        browser.wait_for("Do this")
        assert "orders[0]" in browser.text
        assert cluster.stable_end("orders") == 0, "a plan changes nothing"
        press_on(browser, "button.danger")
        browser.wait_for("ended")
        wait_until(lambda: cluster.stable_end("orders") == 3, "a marker behind the record")
        browser.open(f"http://{console.address}/transactions")
        browser.wait_for("No transaction hangs")
        assert [line for line in browser.complaints if console.address in line] == []


def test_positions_of_a_running_table_writer_and_a_relay_are_shown_until_they_have_caught_up(
    make_tables: Callable[..., TablesWorld], make_outbox: Callable[..., OutboxWorld]
) -> None:
    world, outbox = make_tables(topology=BOTH_KINDS, partitions=1), make_outbox()
    world.apply()
    world.feed(20)
    listening = [f"worker.http_address={ANY_PORT}"]
    transforms = world.start_worker("--processes", "1", settings=listening)
    asked = addresses_of(transforms, 2)
    outbox.publish(7)
    relay = outbox.start_relay(settings=[f"outbox.http_address={ANY_PORT}"])
    asked += addresses_of(relay)
    world.wait_for(20, "doubled")
    outbox.wait_for(7)
    arguments = [word for address in asked for word in ("--ask", address)]
    settings = [f"kafka.bootstrap_servers={world.bootstrap_servers}", "console.refresh_seconds=0.5"]
    with running_console(
        world.directory,
        world.topology_file,
        *arguments,
        settings=settings,
        environment={"EOS_DATABASE__DSN": world.dsn},
    ) as console:
        rows_topic = f"{world.name}-doubled-rows"
        page = console.wait_for("/positions", "messages sent 7")
        assert f"{rows_topic} → doubled" in page.text
        assert "messages waiting 0" in page.text

        def is_read() -> bool:
            rows = console.get("/positions").rows("Positions of table sinks")
            return {row[0] for row in rows} == {f"{rows_topic}[0]"} and int(rows[0][1]) >= 20

        wait_until(is_read, "the position of the table writer")
        relay.process.kill()
        relay.wait()
        console.wait_for("/positions", "no process of eosframework answers there")
        outbox.publish(3)
        again = outbox.start_relay()
        outbox.wait_for(10)
        assert outbox.verify().clean
        again.process.kill()
        again.wait()


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_running_backfill_is_followed_from_its_middle_to_its_end(
    kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    name = unique_name("job")
    job = SparkJob(kafka.bootstrap_servers, name, tmp_path / name)
    job.feed(RECORDS)
    settings = [f"kafka.bootstrap_servers={kafka.bootstrap_servers}"]
    try:
        with running_console(job.directory, job.topology_file, settings=settings) as console:
            console.wait_for("/backfills", "no backfill job")
            job.gates.arm("rows")
            driver = job.drive()
            job.hold("rows", driver)
            wait_until(lambda: job.is_in_the_middle("totals"), "a part of a task")
            page = console.wait_for("/backfills", "not complete")
            [stage, *_] = page.rows("Stages of history")
            assert "complete" not in stage[1], "a task of it is held at a gate"
            job.gates.release("rows")
            driver.ends_with(0)
            done = console.wait_for("/backfills", "; complete;")
            stages = done.rows("Stages of history")
            assert {row[1] for row in stages} == {"complete"}
    finally:
        job.stop()
