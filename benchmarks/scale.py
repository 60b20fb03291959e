"""`scale`: what one more task or producer costs a worker, and what one more process gives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import orjson
import psutil

from benchmarks.contestants.framework import A_PRODUCER_EACH, Framework
from benchmarks.contestants.work import Work
from benchmarks.disciplines import PASSTHROUGH
from benchmarks.measure import CommittedOffsets, Speed, speed_of_input
from benchmarks.options import Options
from benchmarks.processes import Child
from benchmarks.report import Report, Table
from benchmarks.session import Session

TASKS = (1, 4, 16, 64, 256)
TASKS_WITH_A_PRODUCER_EACH = (4, 64)
PROCESSES = (1, 2, 4)
PARTITIONS_OF_PROCESSES = 16
DEFAULT_RECORDS = 1_500_000
WATCHED = "benchmarks.contestants.watched_worker"


@dataclass(frozen=True)
class Load:
    """A worker of so many tasks, through a backlog.

    Args:
        producers: of all tasks.
        round_milliseconds: the median round of commits.
        transactions_per_second: committed by all producers.
    """

    tasks: int
    producers: int
    records_per_second: float
    cpu_microseconds_per_record: float
    resident_megabytes: float
    threads: int
    round_milliseconds: float
    transactions_per_second: float


@dataclass(frozen=True)
class Team:
    """So many processes on the same backlog."""

    processes: int
    records_per_second: float
    cpu_microseconds_per_record: float
    resident_megabytes: float


def run(session: Session, options: Options, report: Report) -> None:
    """Measure one process with more and more tasks, then more and more processes."""
    records = options.records or DEFAULT_RECORDS
    _team(session, records, 1)  # the first run warms the broker up
    loads = [load(session, records, tasks) for tasks in TASKS]
    each = [load(session, records, tasks, each=True) for tasks in TASKS_WITH_A_PRODUCER_EACH]
    teams = [_team(session, records, processes) for processes in PROCESSES]
    rows = [_row_of_load(load) for load in (*loads, *each)] + [_row_of_team(team) for team in teams]
    table = Table(
        f"{records:,} records of 100 bytes as they are; processes share "
        f"{PARTITIONS_OF_PROCESSES} tasks",
        (
            *(
                "processes",
                "tasks",
                "producers",
                "records/s",
                "CPU µs/record",
                "resident MB",
                "threads",
            ),
            *("round of commits, ms", "transactions/s"),
        ),
        rows,
    )
    data: dict[str, Any] = {
        "tasks": [asdict(load) for load in loads],
        "a producer each": [asdict(load) for load in each],
        "processes": [asdict(team) for team in teams],
    }
    report.add("scale", table, data)


def load(session: Session, records: int, tasks: int, *, each: bool = False) -> Load:
    """Measure one process through a backlog.

    Args:
        session: has the broker.
        records: of the backlog.
        tasks: as many as there are partitions.
        each: each task has a producer.
    """
    rounds_file = session.directory / session.name("rounds")
    watched = Framework(
        settings=A_PRODUCER_EACH if each else (),
        module=WATCHED,
        environment={"BENCH_ROUNDS": str(rounds_file)},
    )
    producers = tasks if each else 1

    def measure(offsets: CommittedOffsets, child: Child, _: Work) -> tuple[Speed, float, int]:
        speed = speed_of_input(offsets, child, records)
        process = psutil.Process(child.pid)
        return speed, process.memory_info().rss / 1e6, process.num_threads()

    speed, megabytes, threads = session.run(
        watched,
        session.topic_of(PASSTHROUGH.made, records, tasks),
        measure,
        discipline=PASSTHROUGH.name,
        partitions=tasks,
    )
    rounds = [orjson.loads(line) for line in rounds_file.read_bytes().splitlines()]
    full = [found for found in rounds if found["producers"] == producers] or rounds
    seconds = sorted(found["seconds"] for found in full)
    between = rounds[-1]["at"] - rounds[0]["at"]
    return Load(
        tasks,
        producers,
        round(speed.records_per_second),
        round(speed.cpu_microseconds_per_record, 2),
        round(megabytes),
        threads,
        round(seconds[len(seconds) // 2] * 1000, 1),
        round(sum(found["producers"] for found in rounds[1:]) / between, 1) if between else 0,
    )


def _team(session: Session, records: int, processes: int) -> Team:
    def measure(offsets: CommittedOffsets, child: Child, _: Work) -> tuple[Speed, float]:
        speed = speed_of_input(offsets, child, records)
        return speed, sum(process.memory_info().rss for process in child.descendants()) / 1e6

    speed, megabytes = session.run(
        Framework(processes=processes),
        session.topic_of(PASSTHROUGH.made, records, PARTITIONS_OF_PROCESSES),
        measure,
        discipline=PASSTHROUGH.name,
        partitions=PARTITIONS_OF_PROCESSES,
    )
    return Team(
        processes,
        round(speed.records_per_second),
        round(speed.cpu_microseconds_per_record, 2),
        round(megabytes),
    )


def _row_of_load(load: Load) -> tuple[str, ...]:
    return (
        *("1", str(load.tasks), str(load.producers), f"{load.records_per_second:,}"),
        f"{load.cpu_microseconds_per_record:.2f}",
        *(f"{load.resident_megabytes:.0f}", str(load.threads)),
        *(f"{load.round_milliseconds:.1f}", f"{load.transactions_per_second:.0f}"),
    )


def _row_of_team(team: Team) -> tuple[str, ...]:
    return (
        *(str(team.processes), *[str(PARTITIONS_OF_PROCESSES)] * 2, f"{team.records_per_second:,}"),
        f"{team.cpu_microseconds_per_record:.2f}",
        *(f"{team.resident_megabytes:.0f}", "", "", ""),
    )
