"""Check the model of the commit cycle: complete, and with one rule after the other removed.

The complete protocol must pass an exhaustive search. Without a rule the search must find the
anomaly that the rule prevents, and its trail is printed in words.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("cycle.pml")
MEMORY_MEGABYTES = 3500
TOOLS = ("spin", "gcc")


@dataclass(frozen=True, slots=True)
class Case:
    """One search.

    Args:
        says: the checked protocol, in words.
        switches: -D switches of the model.
        anomaly: the one that the search must find; None: none.
        shortest: search breadth-first; False if the shortest trail is too deep for that.
    """

    says: str
    switches: tuple[str, ...] = ()
    anomaly: str | None = None
    shortest: bool = True


NO_CRASH = "CRASHES=0"
"""Crashes multiply the states by five; these cases need none."""

CASES = (
    Case("the whole protocol"),
    Case("A: a suspect producer is used further", ("WITHOUT_RECYCLE",), "aborted_read"),
    Case("A: the same", ("WITHOUT_RECYCLE",), "torn_transaction"),
    Case("A: the same", ("WITHOUT_RECYCLE",), "offset_went_back"),
    Case("A: the same", ("WITHOUT_RECYCLE",), "left_open"),
    Case(
        "B: T2 before T1, where the group takes any member's offsets",
        ("WITHOUT_INIT_FIRST", "WITHOUT_GROUP_CHECK"),
        "input_doubled",
    ),
    Case(
        "B: T2 before T1, where it reads offsets that are not stable",
        ("WITHOUT_INIT_FIRST", "WITHOUT_STABLE_READS"),
        "input_doubled",
    ),
    Case("C: no output, no offsets", ("WITHOUT_OFFSETS",), "input_doubled"),
    Case(
        "D: after an abort the producer is used further",
        ("WITHOUT_RECYCLE_ON_ABORT",),
        "aborted_read",
    ),
    Case("E: brokers do not verify", ("WITHOUT_VERIFICATION",), "input_lost"),
    Case("F: R3 without R2", ("WITHOUT_SETTLING",), "input_doubled"),
    Case("G: F2 without F1's wait", ("WITHOUT_FENCED_WAIT",), "endless_fencing", shortest=False),
    Case(
        "H: no R2 after a suspect, and the group takes a lapsed member's offsets",
        ("WITHOUT_SUSPECT_CHECK", "WITHOUT_GROUP_CHECK"),
        "input_doubled",
    ),
    Case("I: the group takes a lapsed member's offsets", ("WITHOUT_GROUP_CHECK", NO_CRASH)),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Args:
        anomaly: the violated rule of the model; None: none.
        trail: the events, line by line.
        complete: every state was visited.
    """

    anomaly: str | None
    trail: tuple[str, ...]
    states: int
    megabytes: float
    seconds: float
    complete: bool


def main() -> int:
    """Run the cases and print one line for each; return 0 if all have the expected result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trails", action="store_true", help="print the events that lead to each anomaly"
    )
    parser.add_argument("--case", metavar="TEXT", help="only the cases whose description has TEXT")
    options = parser.parse_args()
    _require_tools()
    failures = 0
    for case in CASES:
        if options.case and options.case not in case.says:
            continue
        found = search(case)
        good = found.anomaly == case.anomaly and (found.complete or case.anomaly is not None)
        failures += not good
        print(_line(case, found, good=good), flush=True)
        if found.trail and (options.trails or not good):
            print(*(f"    {line}" for line in found.trail), sep="\n", flush=True)
    print(
        "the model holds" if not failures else f"{failures} searches did not come out as expected"
    )
    return 1 if failures else 0


def search(case: Case) -> Found:
    """Translate, compile and search the model as `case` wants it."""
    defines = list(case.switches)
    if case.anomaly is not None:
        defines += [f"ONLY={case.anomaly}", NO_CRASH]
    by_breadth = case.anomaly is not None and case.shortest
    if by_breadth:
        defines.append("SHORTEST")
    switches = [f"-D{define}" for define in defines]
    compiling = ["-O2", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MEGABYTES}"]
    with tempfile.TemporaryDirectory() as directory:
        _run(["spin", *switches, "-a", str(MODEL)], directory)
        _run(["gcc", *compiling, *["-DBFS"] * by_breadth, "-o", "pan", "pan.c"], directory)
        began = time.monotonic()
        report = _run([str(Path(directory, "pan")), "-E", "-m100000"], directory)
        seconds = time.monotonic() - began
        trail: tuple[str, ...] = ()
        if (trail_file := Path(directory, f"{MODEL.name}.trail")).exists():
            replay = ["spin", *switches, "-k", str(trail_file), "-T", str(MODEL)]
            trail = _in_words(_run(replay, directory, may_fail=True))
    return Found(
        anomaly=_anomaly(trail),
        trail=trail,
        states=_number(r"(\d+) states, stored", report),
        megabytes=float(_number(r"(\d+)[.\d]*\ttotal actual memory", report)),
        seconds=seconds,
        complete="errors: 0" in report and "Search not completed" not in report,
    )


def _in_words(replay: str) -> tuple[str, ...]:
    """Keep the lines that the model prints, and write its steps as the docstrings number them."""
    lines: list[str] = []
    for line in replay.splitlines():
        if not re.match(r"(worker \d|broker|group|network|ANOMALY): ", line):
            continue
        lines.append(re.sub(r"\bR1_\w+", "R1", re.sub(r"\bs(\d)(_\w+)?\b", r"\1", line)))
        if line.startswith("ANOMALY"):
            break
    return tuple(lines)


def _anomaly(trail: tuple[str, ...]) -> str | None:
    return next((line.split(": ")[1] for line in trail if line.startswith("ANOMALY")), None)


def _line(case: Case, found: Found, *, good: bool) -> str:
    verdict = found.anomaly or ("no anomaly" if found.complete else "NOT SEARCHED TO THE END")
    return (
        f"{'ok' if good else 'NOT AS EXPECTED'}  {case.says}: {verdict}  "
        f"({found.states:,} states, {found.seconds:.1f} s, {found.megabytes:.0f} MB)"
    )


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else 0


def _require_tools() -> None:
    """Install the checker and the compiler if they are missing and this may be done."""
    if all(map(shutil.which, TOOLS)):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing spin and gcc", flush=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", *TOOLS], check=False)
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        sys.exit(
            f"the model is checked with {' and '.join(TOOLS)}; not on the PATH: "
            f"{', '.join(missing)}. On Debian: apt-get install {' '.join(TOOLS)}"
        )


def _run(command: list[str], directory: str, *, may_fail: bool = False) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
