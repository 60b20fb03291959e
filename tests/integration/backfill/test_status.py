"""`backfill status` of jobs as the registry has them: listed, shown, watched."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from eosframework.application.control_topic import ControlTopic
from eosframework.config import KafkaSettings
from eosframework.kafka.admin.cluster_admin import ClusterAdmin
from eosframework.spark.job.job_entry import Job, OffsetRange, TaskProgress, task_key, to_entries
from tests.conftest import KafkaService
from tests.support.processes.commands import Folder

TOPOLOGY = """\
application: NAME
sources:
  numbers: {topic: NAME.in, key: bytes, value: json}
streams:
  doubled:
    from: numbers
    steps: [{map_values: "tests.support.applications.functions:double"}]
    to: [{topic: NAME.doubled, value: json}]
"""


class Jobs:
    """An application's registry with jobs in it."""

    def __init__(self, bootstrap_servers: str, name: str, directory: Path) -> None:
        self.name = name
        self.folder = Folder(directory, bootstrap_servers)
        self.folder.write("app.yaml", TOPOLOGY.replace("NAME", name))
        settings = KafkaSettings(bootstrap_servers=bootstrap_servers)
        self.registry = ControlTopic(name, settings, ClusterAdmin(settings))
        self.registry.ensure()

    def begin(self, job: str, *, at: int = 0) -> None:
        found = Job(
            application=self.name,
            name=job,
            fingerprint={},
            created_at=at,
            ranges={f"{self.name}.in": (OffsetRange(first=0, end=1000),)},
        )
        self.registry.write(to_entries(found))

    def progress(self, job: str, records: int, *, complete: bool = False) -> None:
        progress = TaskProgress(
            positions={f"{self.name}.in/0": records},
            metadata="",
            records=records,
            complete=complete,
            attempt="a",
            written_at=1,
        )
        self.registry.write({task_key(job, "doubled", 0): progress.to_entry()})

    def watch(self, job: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.folder.command("backfill", "status", "app.yaml", "--job", job, "--watch"),
            cwd=self.folder.path,
            env=self.folder.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def jobs(kafka: KafkaService, unique_name: Callable[[str], str], tmp_path: Path) -> Jobs:
    return Jobs(kafka.bootstrap_servers, unique_name("jobs"), tmp_path)


def test_jobs_are_listed_and_one_is_shown_with_its_tasks(jobs: Jobs) -> None:
    empty = jobs.folder.run("backfill", "status", "app.yaml")
    assert (empty.exit_code, "has no backfill job" in empty.out) == (0, True)
    jobs.begin("later", at=2)
    jobs.begin("earlier", at=1)
    jobs.progress("later", 250)
    listed = jobs.folder.run("backfill", "status", "app.yaml")
    assert [line.split()[1] for line in listed.out.splitlines()] == ["earlier", "later"]

    shown = jobs.folder.run("backfill", "status", "app.yaml", "--job", "later")
    assert "250 records  25.0%" in shown.out
    report = jobs.folder.run("backfill", "status", "app.yaml", "--job", "later", "--json").json
    [stage] = report["stages"]
    assert (stage["done"], stage["total"], report["complete"]) == (250, 1000, False)
    assert stage["tasks"][0]["records"] == 250

    unknown = jobs.folder.run("backfill", "status", "app.yaml", "--job", "never")
    assert unknown.exit_code == 2
    assert "has no backfill job 'never'" in unknown.error


def test_a_job_is_watched_until_it_is_complete_or_nobody_wants_to_any_more(jobs: Jobs) -> None:
    jobs.begin("january")
    watching, interrupted = jobs.watch("january"), jobs.watch("january")
    for one in (watching, interrupted):
        assert one.stdout is not None
        assert b"not complete" in one.stdout.readline()
    interrupted.send_signal(signal.SIGINT)
    _, err = interrupted.communicate(timeout=180)
    assert interrupted.returncode == 0, err.decode()
    assert b"Traceback" not in err
    jobs.progress("january", 990, complete=True)
    out, err = watching.communicate(timeout=180)
    assert watching.returncode == 0, err.decode()
    assert b": complete" in out
