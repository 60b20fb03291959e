"""The console's pages say what the commands say with --json, and survive workers and brokers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from eosframework.config import ConsoleSettings
from tests.support.applications.pipeline import Pipeline, WorkerProcess, wait_until
from tests.support.applications.totals import Totals
from tests.support.processes.commands import here
from tests.support.processes.consoles import ConsoleProcess, running_console
from tests.support.verifiers.asked import ANY_PORT, addresses_of, get_json, wait_until_ready

STORE = "totals.aggregate"
LISTENING = f"worker.http_address={ANY_PORT}"
TOKEN = "a token of sixteen characters"


@contextmanager
def console_of(
    totals: Pipeline, *arguments: str, token: str | None = None, settings: list[str] | None = None
) -> Iterator[ConsoleProcess]:
    servers = f"kafka.bootstrap_servers={totals.bootstrap_servers}"
    own = {} if token is None else {"EOS_CONSOLE__TOKEN": token}
    chosen = [servers, "console.refresh_seconds=0.5", *(settings or [])]
    with running_console(
        totals.directory, totals.topology_file, *arguments, settings=chosen, environment=own
    ) as console:
        yield console


def json_of(totals: Pipeline, *arguments: str) -> Any:
    """What a command says with --json."""
    servers = f"kafka.bootstrap_servers={totals.bootstrap_servers}"
    done = here(*arguments, "--set", servers, "--json")
    assert done.exit_code == 0, done.err
    return done.json


def started(totals: Totals, instance: str) -> tuple[WorkerProcess, str]:
    worker = totals.start_worker(instance=instance, settings=[*totals.keeping, LISTENING])
    [address] = addresses_of(worker)
    return worker, address


def test_pages_say_what_the_commands_say_and_survive_a_killed_worker(
    make_pipeline: Callable[..., Totals],
) -> None:
    totals = make_pipeline(Totals, partitions=2)
    totals.feed(200)
    worker, address = started(totals, "one")
    wait_until_ready(address)
    read = [totals.source, *(f"{totals.name}-{s}-repartition" for s in ("totals", "latest"))]
    wait_until(lambda: totals.committed() >= 200 and not totals.unread(*read), "no lag, at rest")
    app = str(totals.topology_file)
    with console_of(totals, "--ask", address) as console:
        console.wait_for("/topology", "1 member, 6 tasks, lag 0")
        status = json_of(totals, "status", app)
        tasks = console.wait_for("/tasks", f"{totals.name}.one: ready")
        shown = {row[0]: row for row in tasks.rows("Tasks") if len(row) > 7}
        assert set(shown) == {task["task"] for task in status["tasks"]}
        for task in status["tasks"]:
            [partition, *_] = task["partitions"]
            row = shown[task["task"]]
            assert row[1] == task["owner"]
            assert row[2] == "running"
            assert (row[3], row[4]) == (partition["partition"], str(partition["committed"]))

        listed = json_of(totals, "txn", "list", totals.name)["transactions"]
        ids = console.wait_for("/transactions", "Transactional ids of the application")
        assert {row[0] for row in ids.rows("Transactional ids")} == {
            entry["transactional_id"] for entry in listed
        }
        wanted = listed[0]["transactional_id"]
        traced = json_of(totals, "txn", "trace", wanted)["transactions"]
        trace = console.wait_for(f"/transactions/trace?id={wanted}", "CompleteCommit")
        for marker in traced[-1]["markers"]:
            place = f"{marker['topic']}[{marker['partition']}] at offset {marker['offset']}"
            assert f"marker COMMIT {place}" in trace.text

        positions = json_of(totals, "positions", "show", app)["positions"]
        page = console.wait_for("/positions", f"{totals.name}.in[1]")
        assert {(row[0], row[1]) for row in page.rows("Positions of transforms")} == {
            (f"{p['topic']}[{p['partition']}]", str(p["committed"])) for p in positions
        }

        scanned = json_of(totals, "state", "scan", app, STORE, "--from-changelog")["found"]
        for source in ("workers", "changelog"):
            address_of_rows = f"/state?store={STORE}&scan=1&source={source}"
            rows = console.wait_for(address_of_rows, scanned[0]["key"]).rows("Rows")
            assert {row[0] for row in rows} == {row["key"] for row in scanned}
        found = console.get(f"/state?store={STORE}&key=3&source=workers").rows("Rows")
        [value] = [row["value"] for row in scanned if row["key"] == "3"]
        assert f'"count":{value["count"]}' in found[0][1]
        absent = console.get(f"/state?store={STORE}&key=none&source=changelog")
        assert "has no key 'none'" in absent.text
        assert "No dead letters" in console.wait_for("/dead-letters", "No dead letters").text
        console.wait_for("/backfills", "no backfill job")

        worker.signal(signal.SIGKILL)
        worker.wait()
        console.wait_for("/tasks", "no process of eosframework answers there")
        second, _ = started(totals, "two")
        taken = console.wait_for("/tasks", f"→ {totals.name}.two")
        assert f"{totals.name}.one" in taken.text
        second.signal(signal.SIGTERM)
        assert second.wait() == 0
        console.wait_for("/tasks", "No process runs transforms")


def test_the_page_of_transactions_names_what_holds_readers_back(
    make_pipeline: Callable[..., Totals],
) -> None:
    totals = make_pipeline(Totals, partitions=1)
    held = {
        "bootstrap.servers": totals.bootstrap_servers,
        "transactional.id": f"{totals.name}.upstream",
        "transaction.timeout.ms": 600_000,
    }
    producer = Producer(held)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(totals.source, b'{"n": 1}', b"1")
    assert producer.flush(60) == 0
    with console_of(totals, "--allow-changes", token=TOKEN) as console:
        signed_in = {"Authorization": f"Bearer {TOKEN}"}

        def is_named() -> bool:
            return f"{totals.name}.upstream" in console.get("/transactions", signed_in).text

        wait_until(is_named, "the holder on the page")
        findings = json_of(totals, "txn", "hanging", "--topic", totals.source)
        [entry] = findings["healthy"]
        page = console.get("/transactions", signed_in)
        [row] = [r for r in page.rows("Open transactions") if r[0] == f"{totals.source}[0]"]
        assert row[4:7] == [
            str(entry["start_offset"]),
            str(entry["last_stable_offset"]),
            f"{entry['held_back']} offsets",
        ]
        refused = console.get(f"/changes/end?id={totals.name}.upstream", signed_in)
        assert "healthy" in refused.text or "not overdue" in refused.text
    producer.abort_transaction(60)


def test_an_application_that_nobody_runs_and_a_topology_that_is_repaired(
    make_pipeline: Callable[..., Totals], tmp_path: Path
) -> None:
    totals = make_pipeline(Totals, partitions=1)
    right = totals.topology_file.read_text()
    totals.topology_file.write_text(right.replace("tens", "no_such_function"))
    with console_of(totals) as console:
        broken = console.wait_for("/topology", "no_such_function")
        assert broken.status == 200
        assert 'role="alert"' in broken.html
        totals.topology_file.write_text(right)
        console.wait_for("/topology", "0 members, 3 tasks")
        console.wait_for("/tasks", "No process runs transforms")
        console.wait_for("/transactions", "No transaction hangs")


def committed_of(pipeline: Pipeline, app: str) -> list[int | None]:
    tasks = json_of(pipeline, "status", app)["tasks"]
    return [p["committed"] for task in tasks for p in task["partitions"]]


REPLAYED = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    on_error: {dead_letter: NAME.dead, replay: true}
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.doubled, value: json}]
"""


def test_changes_show_their_plans_and_need_their_own_forms(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(topology=REPLAYED, partitions=1, outputs={"doubled": 2})
    pipeline.apply()
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    producer.produce(pipeline.source, b"no JSON", b"1", 0)
    assert producer.flush(60) == 0
    pipeline.feed(1)
    pipeline.finish()
    app = str(pipeline.topology_file)
    [group] = json_of(pipeline, "dead-letters", "list", app)["groups"]
    with console_of(pipeline) as console:
        assert group["error"] in console.wait_for("/dead-letters", group["example"]).text
        assert console.get("/changes/replay").status == 403
        form = {"form_token": console.get("/audit").form_token}
        assert console.post("/changes/replay", form).status == 403
    with console_of(pipeline, "--allow-changes", token=TOKEN) as console:
        assert console.get("/dead-letters").headers["location"].startswith("/sign-in")
        page = console.get("/sign-in")
        wrong = console.post(
            "/sign-in", {"form_token": page.form_token, "token": "some other token"}
        )
        assert wrong.status == 403
        assert "not the console's token" in wrong.text
        right = console.post("/sign-in", {"form_token": page.form_token, "token": TOKEN})
        cookie = right.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        own = {"Cookie": cookie.split(";")[0]}
        plan = console.get("/changes/replay", own)
        assert "1 dead letters would be replayed" in plan.text
        form = {"form_token": plan.form_token, "fingerprint": plan.field("fingerprint")}
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Origin": "https://elsewhere.example"},
            {"Origin": "null"},
        ):
            refused = console.post("/changes/replay", form, own | headers)
            assert refused.status == 403
            assert "another site" in refused.text
        forged = console.post("/changes/replay", form | {"form_token": "0" * 64}, own)
        assert forged.status == 403
        other = console.post("/changes/replay", form | {"fingerprint": "0" * 64}, own)
        assert other.status == 409
        assert "plan has changed" in other.text
        assert json_of(pipeline, "dead-letters", "list", app)["groups"][0]["replayed"] == 0
        same = {"Origin": f"http://{console.address}", "Sec-Fetch-Site": "same-origin"}
        done = console.post("/changes/replay", form, own | same)
        assert done.status == 303, done.text
        job = done.headers["location"]
        wait_until(lambda: "running" not in console.get(job, own).text, "the replay's end")
        assert "1 replayed" in console.get(job, own).text
        assert json_of(pipeline, "dead-letters", "list", app)["groups"][0]["replayed"] == 1

        emptied = "delete all records of topic"
        assert emptied not in console.get("/changes/reset", own).text
        plan = console.get("/changes/reset?outputs=yes", own)
        assert emptied in plan.text, plan.text
        assert f"delete group {pipeline.name} with its committed offsets" in plan.text
        form = {"form_token": plan.form_token, "fingerprint": plan.field("fingerprint")}
        assert any(committed_of(pipeline, app))
        [output] = pipeline.outputs
        assert pipeline.read(output)
        assert not pipeline.removed(output)
        form["outputs"] = "yes"
        job = console.post("/changes/reset", form, own).headers["location"]
        wait_until(lambda: "running" not in console.get(job, own).text, "the reset's end")
        assert "done; create its topics again" in console.get(job, own).text
        pipeline.apply()
        assert not any(committed_of(pipeline, app))
        assert pipeline.removed(output)


FAILING = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    on_error: fail
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.doubled, value: json}]
"""


def test_a_task_that_is_stopped_at_a_record_is_named_until_it_passes_it(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(topology=FAILING, partitions=1, outputs={"doubled": 2})
    pipeline.apply()
    producer = Producer({"bootstrap.servers": pipeline.bootstrap_servers})
    producer.produce(pipeline.source, b'{"n": 1}', b"1", 0)
    producer.produce(pipeline.source, b"no JSON", b"1", 0)
    assert producer.flush(60) == 0
    app, place = str(pipeline.topology_file), f"{pipeline.source}[0]@1"
    assert json_of(pipeline, "status", app)["failures"] == []
    worker = pipeline.start_worker(instance="one")
    assert worker.wait() == 1
    [failure] = json_of(pipeline, "status", app)["failures"]
    assert failure["task"] == "doubled[0]"
    assert failure["record"] == place
    assert f"record {place} failed in step 'numbers: decode value as json'" in failure["error"]
    assert failure["instance"] == f"{pipeline.name}.one"
    with console_of(pipeline) as console:
        overview = console.wait_for("/overview", f"doubled[0] is stopped at record {place}")
        assert failure["error"] in overview.text
        assert "Not well" in overview.text
        stopped = console.wait_for("/tasks?task=doubled[0]", "stopped at a record")
        [row] = [row for row in stopped.rows("Tasks") if row[0] == "doubled[0]"]
        assert row[1:3] == ["no owner", "stopped at a record"]
        text = pipeline.topology_file.read_text()
        pipeline.topology_file.write_text(text.replace("on_error: fail", "on_error: skip"))
        skipping = pipeline.start_worker(instance="one", until_caught_up=True)
        assert skipping.wait() == 0
        assert json_of(pipeline, "status", app)["failures"] == []
        console.wait_for("/overview", "no process runs transforms")
        assert "is stopped at record" not in console.get("/overview").text


def test_an_audit_is_started_from_its_page_and_shows_its_verdict(
    make_pipeline: Callable[..., Pipeline],
) -> None:
    pipeline = make_pipeline(partitions=1)
    pipeline.feed(50)
    worker = pipeline.start_worker(until_caught_up=True, settings=["worker.receipts=true"])
    assert worker.wait() == 0
    with console_of(pipeline) as console:
        page = console.get("/audit")
        functions = {"form_token": page.form_token, "by": "functions"}
        assert console.post("/audit", functions).status == 403
        assert console.post("/audit", functions | {"by": "nonsense"}).status == 400
        job = console.post("/audit", {"form_token": page.form_token, "by": "receipts"})
        assert job.status == 303, job.text
        verdict = console.wait_for(job.headers["location"], "took effect exactly once")
        told = json_of(pipeline, "audit", str(pipeline.topology_file), "--by", "receipts")
        assert told["lost"] == 0
        assert f" {told['input']} {told['output']} 0 0 0 0 " in verdict.text


@pytest.mark.exhaustive
def test_a_console_costs_a_worker_of_many_tasks_less_than_a_hundredth_of_a_core(
    make_pipeline: Callable[..., Totals], capsys: pytest.CaptureFixture[str]
) -> None:
    totals = make_pipeline(Totals, partitions=20)
    totals.feed(200)
    worker, address = started(totals, "one")
    wait_until_ready(address)
    wait_until(lambda: totals.committed() >= 200, "all input committed")

    def seconds_of_processor() -> float:
        fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    asked_times = 400
    before, began = seconds_of_processor(), time.monotonic()
    for _ in range(asked_times):
        assert len(get_json(address, "/status")[1]["tasks"]) == 60
    asking = seconds_of_processor() - before
    took = time.monotonic() - began
    before = seconds_of_processor()
    time.sleep(took)
    idle = seconds_of_processor() - before
    share = (asking - idle) / asked_times / ConsoleSettings().refresh_seconds
    with capsys.disabled():
        print(f"\n/status of 60 tasks: {share:.4%} of a core for one console")
    assert share < 0.01
