"""`group-protocols`: how long a killed and restarted member's partitions stand still."""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.feeding import feeding
from benchmarks.inputs import PARTITIONS, create_topics
from benchmarks.options import Options
from benchmarks.processes import Command, ProcessFailed, running
from benchmarks.report import Report, Table
from benchmarks.session import Session

MEMBER = Path(__file__).with_name("group_member.py")
DEADLINE_SECONDS = 120.0
SETTLED_SECONDS = 5.0
"""Both members must have been reading for this long before one is killed."""
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Variant:
    """A way of being a group member."""

    name: str
    static: bool
    properties: dict[str, str]
    repetitions: int


VARIANTS = (
    Variant("classic, static, range", True, {"partition.assignment.strategy": "range"}, 5),
    Variant("classic, dynamic, range", False, {"partition.assignment.strategy": "range"}, 2),
    Variant(
        "KIP-848, static, range",
        True,
        {"group.protocol": "consumer", "group.remote.assignor": "range"},
        2,
    ),
    Variant(
        "KIP-848, dynamic, range",
        False,
        {"group.protocol": "consumer", "group.remote.assignor": "range"},
        2,
    ),
)


@dataclass(frozen=True)
class Standstill:
    """One kill: how long partitions had no record, in seconds from the SIGKILL on.

    Args:
        own: until all partitions of the killed member were read again.
        others: longest gap in the partitions of the member that lived on.
    """

    own: float
    others: float


def run(session: Session, options: Options, report: Report) -> None:
    """Measure all variants side by side, each with a group of its own."""
    with ThreadPoolExecutor(len(VARIANTS)) as pool:
        futures = [pool.submit(_measure, session, options, variant) for variant in VARIANTS]
        found = [future.result() for future in futures]
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for variant, standstills in zip(VARIANTS, found, strict=True):
        own = [standstill.own for standstill in standstills]
        others = [standstill.others for standstill in standstills]
        rows.append(
            (
                variant.name,
                str(len(own)),
                f"{statistics.median(own):.2f}",
                f"{max(own):.2f}",
                f"{max(others):.2f}",
            )
        )
        data[variant.name] = {"seconds": own, "others_longest_gap_seconds": others}
    table = Table(
        title="SIGKILL of one of two members and restart at once, default session timeouts",
        columns=("variant", "kills", "its partitions, median s", "longest s", "others, longest s"),
        rows=rows,
    )
    report.add("group-protocols", table, data)


def _measure(session: Session, options: Options, variant: Variant) -> list[Standstill]:
    repetitions = min(variant.repetitions, options.rounds or variant.repetitions)
    return [_kill_once(session, variant) for _ in range(repetitions)]


def _kill_once(session: Session, variant: Variant) -> Standstill:
    topic = session.name("protocol")
    create_topics(session.bootstrap_servers, topic)
    logs = [session.directory / f"{topic}.{part}.log" for part in ("killed", "other", "again")]
    with ExitStack() as stack:
        stack.enter_context(feeding(session.bootstrap_servers, topic))
        killed, _ = (
            stack.enter_context(running(_member(session, variant, topic, number), logs[number]))
            for number in (0, 1)
        )
        mine = _await(lambda: _settled(logs), f"{variant.name}: both members to read")
        os.kill(killed.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        stack.enter_context(running(_member(session, variant, topic, 0), logs[2]))
        own = _await(lambda: _read_again(logs, mine, killed_at), f"{variant.name}: a takeover")
    return Standstill(own, _longest_gap(logs, set(range(PARTITIONS)) - mine, killed_at, own))


def _member(session: Session, variant: Variant, topic: str, number: int) -> Command:
    properties = {
        "bootstrap.servers": session.bootstrap_servers,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        **variant.properties,
    }
    if variant.static:
        properties["group.instance.id"] = f"{topic}-{number}"
    return Command([sys.executable, str(MEMBER), topic, json.dumps(properties)])


def _await(look: Callable[[], Any], wanted: str) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise ProcessFailed(f"waited {DEADLINE_SECONDS:g} s in vain for {wanted}")
        time.sleep(LOOK_SECONDS)
    return found


def _settled(logs: list[Path]) -> set[int] | None:
    """Partitions of the first member, once each member has read its own for a while."""
    since = time.monotonic() - SETTLED_SECONDS
    recent = [{p for at, p in _reads(log) if at > since} for log in logs[:2]]
    early = all(any(at < since for at, _ in _reads(log)) for log in logs[:2])
    shared_out = all(recent) and not recent[0] & recent[1]
    if early and shared_out and len(recent[0] | recent[1]) == PARTITIONS:
        return recent[0]
    return None


def _read_again(logs: list[Path], partitions: set[int], killed_at: float) -> float | None:
    first: dict[int, float] = {}
    for at, partition in sorted(read for log in logs[1:] for read in _reads(log)):
        if at > killed_at and partition in partitions:
            first.setdefault(partition, at - killed_at)
    return max(first.values()) if first.keys() == partitions else None


def _longest_gap(logs: list[Path], partitions: set[int], killed_at: float, seconds: float) -> float:
    longest = 0.0
    for wanted in partitions:
        times = sorted(at for log in logs for at, partition in _reads(log) if partition == wanted)
        times = [at for at in times if killed_at - 1 < at < killed_at + seconds + 1]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        longest = max([longest, *gaps])
    return longest


def _reads(log: Path) -> list[tuple[float, int]]:
    if not log.exists():
        return []
    lines = (line.split() for line in log.read_text(encoding="utf-8").splitlines())
    return [
        (float(line[0]), int(line[1])) for line in lines if len(line) == 3 and line[1].isdigit()
    ]
