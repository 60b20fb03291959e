"""Check the models: each protocol complete, and with one rule after the other removed.

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CYCLE, OWNERSHIP, CUTOVER = "cycle.pml", "ownership.pml", "cutover.pml"
WATERMARKS, TOGETHER, ONCE = "watermarks.pml", "together.pml", "once.pml"
MEMORY_MEGABYTES = 3500
TOOLS = ("spin", "gcc")
AT_ONCE = 2
"""Searches that run at the same time."""


@dataclass(frozen=True, slots=True)
class Case:
    """One search.

    Args:
        says: the checked protocol, in words.
        switches: -D switches of the model.
        anomaly: the one that the search must find; None: none.
        shortest: search breadth-first; False if the shortest trail is too deep for that.
        model: file name of the model.
        deep: too long for each run; searched with --deep only.
    """

    says: str
    switches: tuple[str, ...] = ()
    anomaly: str | None = None
    shortest: bool = True
    model: str = CYCLE
    deep: bool = False


NO_CRASH = "CRASHES=0"
"""Crashes multiply the states by five; these cases need none."""


def _ownership(
    says: str, anomaly: str | None, *switches: str, base: tuple[str, ...] = ("MOVES=2",)
) -> Case:
    bounds = ("LATE=0", "CRASHES=0", *base)
    return Case(says, (*bounds, *switches), anomaly, model=OWNERSHIP)


def _cutover(says: str, anomaly: str | None, *switches: str) -> Case:
    bounds = ("ATTEMPTS=0", "LAPSES=1")
    return Case(says, (*bounds, *switches), anomaly, model=CUTOVER)


def _attempts(says: str, anomaly: str | None, *switches: str) -> Case:
    bounds = ("WORKERS=1", "CUTOVERS=1", "LAPSES=1")
    return Case(says, (*bounds, *switches), anomaly, model=CUTOVER)


def _watermarks(says: str, anomaly: str | None, *switches: str) -> Case:
    return Case(says, switches, anomaly, model=WATERMARKS)


def _together(says: str, anomaly: str | None, *switches: str) -> Case:
    return Case(says, (NO_CRASH, *switches), anomaly, model=TOGETHER)


def _once(says: str, anomaly: str | None, *switches: str) -> Case:
    return Case(says, switches, anomaly, model=ONCE)


DOUBLED = "effect_doubled"
AT_MOST_ONE = ("SERVICE=PLAIN", "POLICY=DEAD_LETTER")
LOOKED_UP = ("SERVICE=PLAIN", "POLICY=LOOK_UP")
BY_ATTEMPTS = ("SERVICE=ATTEMPTS", "POLICY=LOOK_UP")
DEAD_CALLERS = ("MOVES=0", "DOUBTS=0")

UNLISTED = "unlisted_writer"
NAMESAKES = ("WORKERS=3", "MOVES=1", "BLIND=1")
MIXED_MODES = ("MIXED", "PARTITIONS=1", "MOVES=3")

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
    Case(
        "G: R1 from FENCED without R0's wait",
        ("WITHOUT_FENCED_WAIT",),
        "endless_fencing",
        shortest=False,
    ),
    Case(
        "H: no R2 after a suspect, and the group takes a lapsed member's offsets",
        ("WITHOUT_SUSPECT_CHECK", "WITHOUT_GROUP_CHECK"),
        "input_doubled",
    ),
    Case("I: the group takes a lapsed member's offsets", ("WITHOUT_GROUP_CHECK", NO_CRASH)),
    _ownership("ownership, whole", None),
    _ownership("ownership, whole, with a blind look", None, "BLIND=1"),
    _ownership("ownership, whole, with a suspect start", None, "STARTS=1"),
    Case(
        "ownership, whole, with a late frame and a crash",
        ("MOVES=1", "LATE=1", "CRASHES=1"),
        model=OWNERSHIP,
    ),
    _ownership("ownership, whole, both modes", None, base=MIXED_MODES),
    _ownership("ownership, whole, with a namesake", None, "PARTITIONS=1", base=NAMESAKES),
    _ownership(
        "O1: the group takes a lapsed member's offsets",
        "input_doubled",
        "WITHOUT_GROUP_CHECK",
        "BLIND=1",
    ),
    _ownership("O2: no entry anew after a recycle", UNLISTED, "WITHOUT_ENTRY_ANEW"),
    _ownership("O3: a key for each process", UNLISTED, "WITHOUT_FRESH_CLAIMS"),
    _ownership("O4: the entry before the init", UNLISTED, "WITHOUT_INIT_FIRST"),
    _ownership("O5: not every listed id is inited", UNLISTED, "WITHOUT_ALL_IDS"),
    _ownership("O6: entries overwrite each other", UNLISTED, "WITHOUT_OWN_KEYS"),
    _ownership("O7: the entry after the first write", UNLISTED, "WITHOUT_TIMELY_ENTRY"),
    _ownership("O8: all entries are removed", UNLISTED, "WITHOUT_EXACT_REMOVAL"),
    _ownership(
        "O9: the offset is read before the fence, and is not stable",
        "input_doubled",
        "WITHOUT_FENCE_FIRST",
        "WITHOUT_STABLE_READS",
    ),
    _ownership("O10: released before the commit", UNLISTED, "WITHOUT_LATE_RELEASE"),
    Case(
        "O11: a suspect producer releases",
        ("MOVES=2", "LATE=1", "WITHOUT_CLEAN_RELEASE"),
        "torn_transaction",
        model=OWNERSHIP,
    ),
    _ownership(
        "O12: an id with a later incarnation is skipped",
        UNLISTED,
        "WITH_LATER_INCARNATION_SKIPPED",
        base=NAMESAKES,
    ),
    _ownership(
        "O13: entries of one's own id are removed that were read after its init",
        UNLISTED,
        "WITHOUT_EARLY_READ",
        base=("WORKERS=3", "PARTITIONS=1", "MOVES=2"),
    ),
    _ownership(
        "O14: the mode of a producer for each partition records nothing",
        UNLISTED,
        "WITHOUT_STATIC_ENTRY",
        base=MIXED_MODES,
    ),
    _ownership(
        "O15: a takeover with a suspect commit is not repeated",
        UNLISTED,
        "WITHOUT_REPEAT",
        "STARTS=1",
    ),
    _ownership("O16: nothing is recorded", None, "WITHOUT_RECORD"),
    _cutover("cutover, whole", None),
    _attempts("cutover, whole, with attempts of the job", None),
    _attempts("C-A2: an id for each attempt", "input_doubled", "WITHOUT_TASK_ID"),
    _attempts("C-A3: no reading after the init", "input_doubled", "WITHOUT_PROGRESS_READ"),
    _attempts("C-C1: unstable progress counts", "input_lost", "WITHOUT_STABLE_READS"),
    _cutover("C-C1: the end of the range counts as new", "history_again", "WITHOUT_EQUAL_REFUSED"),
    _cutover("C-C2: no member", "history_again", "WITHOUT_JOIN"),
    _cutover("C-C3: nobody is fenced", "history_again", "WITHOUT_FENCE", "WITHOUT_STABLE_READS"),
    _cutover("C-C4: no second check", "history_again", "WITHOUT_SECOND_CHECK"),
    _cutover("C-C5: no membership", "history_again", "WITHOUT_MEMBERSHIP"),
    _cutover("C-C5: a transaction for each partition", "history_again", "WITHOUT_ONE_COMMIT"),
    _watermarks("watermarks, whole", None),
    _watermarks("W1: not in the transaction", "time_passed_record", "WITHOUT_TRANSACTION"),
    _watermarks("W1: before the outputs", "time_passed_record", "WITHOUT_ORDER"),
    _watermarks("W2: not after a takeover", "time_held", "WITHOUT_TAKEOVER"),
    _watermarks("W2: an aborted one counts as announced", "time_held", "WITHOUT_DROP"),
    Case(
        "W-T1: the former writer is not fenced",
        ("WITHOUT_FENCE",),
        "time_passed_record",
        shortest=False,
        model=WATERMARKS,
    ),
    _watermarks("W-T2: a writer begins at no time", "time_passed_record", "WITHOUT_WRITERS_TIME"),
    _watermarks("W-T2: a reader begins at no time", "time_held", "WITHOUT_READERS_TIME"),
    _watermarks("W-T2: a reader begins without the vector", "time_held", "WITHOUT_VECTOR"),
    _watermarks("W: the vector before the offsets", "time_held", "WITH_VECTOR_FIRST"),
    _watermarks("W: the vector after the offsets", "time_held", "WITH_VECTOR_LAST"),
    _watermarks("W: uncommitted reads", "time_passed_record", "WITHOUT_COMMITTED_READS"),
    Case("rows and outputs together, whole", model=TOGETHER),
    _together("together, whole, with two moves and two doubts", None, "MOVES=2", "DOUBTS=2"),
    _together("V2: no check of the epoch", "row_doubled", "WITHOUT_EPOCH_CHECK"),
    _together("V2: after V3", "undecided_output", "WITHOUT_DECISION_FIRST"),
    _together("V2: no answer counts as failed", "row_doubled", "WITHOUT_DOUBT"),
    _together("V3: no answer counts as committed", "undecided_output", "WITHOUT_RECOVERY"),
    _together("V4: no epoch is raised", "row_doubled", "WITHOUT_DATABASE_FENCE"),
    _together("V4: no lock", "row_doubled", "WITHOUT_LOCK"),
    _together("V4: after V5", None, "WITHOUT_DECISION_READ_FIRST"),
    _together("V5: after V6", "input_lost", "WITHOUT_INIT_FIRST"),
    _together("V5: not for every listed id", "row_doubled", "WITHOUT_ALL_IDS"),
    _together("V6: nothing is produced again", "row_doubled", "WITHOUT_REPLAY"),
    _together("V6: always produced again", "input_doubled", "WITHOUT_COMPARISON"),
    _together("V6: without offsets", "row_doubled", "WITHOUT_OFFSETS_AGAIN"),
    _together("V6: of offsets that are not stable", None, "WITHOUT_STABLE_READS"),
    _together("the group takes a lapsed member's offsets", "row_doubled", "WITHOUT_GROUP_CHECK"),
    _once("effects, whole: the service honours keys", None),
    _once("effects, whole: it rejects older attempts", None, *BY_ATTEMPTS),
    _once("effects, whole: it does neither, and doubts are dead letters", None, *AT_MOST_ONE),
    _once("effects: it does neither, and is looked up", DOUBLED, *LOOKED_UP),
    _once("effects: the same, after dead callers", None, *LOOKED_UP, *DEAD_CALLERS),
    _once("J1: the other id is not inited", DOUBLED, "WITHOUT_FENCE", *AT_MOST_ONE),
    _once("J1: after J2", DOUBLED, "WITHOUT_FENCE_FIRST", *AT_MOST_ONE),
    _once("J3: no intent", DOUBLED, "WITHOUT_INTENT", *AT_MOST_ONE),
    _once("J3: without offsets", DOUBLED, "WITHOUT_GROUP_CHECK", *AT_MOST_ONE),
    _once("J3: an attempt number is used again", DOUBLED, "WITHOUT_NEW_ATTEMPT", *BY_ATTEMPTS),
    _once("J3: not in a doubt", DOUBLED, "WITHOUT_INTENT_IN_DOUBT", *BY_ATTEMPTS),
    _once("J4: looked up without it", DOUBLED, "WITHOUT_ATTEMPT_LOOKED_UP", *BY_ATTEMPTS),
    _once("J4: an intent is overlooked", DOUBLED, "WITHOUT_POLICY", *AT_MOST_ONE),
    _once("J4: a result is overlooked", "called_again", "WITHOUT_REPLAY"),
    _once("J5: no result", "needless_doubt", "WITHOUT_RESULT", *AT_MOST_ONE),
    Case(
        "deep: rows and outputs together, two crashes",
        ("CRASHES=2", "EXPIRIES=0"),
        model=TOGETHER,
        deep=True,
    ),
    Case(
        "deep: two moves and a late frame",
        ("MOVES=2", "LATE=1", "CRASHES=0"),
        model=OWNERSHIP,
        deep=True,
    ),
    Case(
        "deep: two moves and a crash",
        ("MOVES=2", "LATE=0", "CRASHES=1"),
        model=OWNERSHIP,
        deep=True,
    ),
    Case(
        "deep: three moves",
        ("MOVES=3", "LATE=0", "CRASHES=0"),
        model=OWNERSHIP,
        deep=True,
    ),
    Case(
        "deep: a namesake",
        ("LATE=0", "CRASHES=0", "WORKERS=3", "MOVES=2", "BLIND=1", "PARTITIONS=1"),
        model=OWNERSHIP,
        deep=True,
    ),
    Case(
        "deep: both modes, three moves, a late frame, a crash",
        MIXED_MODES,
        model=OWNERSHIP,
        deep=True,
    ),
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
    parser.add_argument("--deep", action="store_true", help="the long searches instead")
    options = parser.parse_args()
    _require_tools()
    failures = 0
    cases = [
        case
        for case in CASES
        if case.deep == options.deep and (not options.case or options.case in case.says)
    ]
    searches = ThreadPoolExecutor(AT_ONCE)
    for case, found in zip(cases, searches.map(search, cases), strict=True):
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
        defines += [f"ONLY={case.anomaly}"]
        defines += [NO_CRASH] * (NO_CRASH not in defines)
    by_breadth = case.anomaly is not None and case.shortest
    if by_breadth:
        defines.append("SHORTEST")
    switches = [f"-D{define}" for define in defines]
    # A short search takes less time than an optimized compilation of its program.
    is_short = case.model != CYCLE and case.anomaly is not None
    compiling = [
        "-O0" if is_short else "-O2",
        "-DSAFETY",
        "-DCOLLAPSE",
        f"-DMEMLIM={MEMORY_MEGABYTES}",
    ]
    model = HERE / case.model
    with tempfile.TemporaryDirectory() as directory:
        _run(["spin", *switches, "-a", str(model)], directory)
        _run(["gcc", *compiling, *["-DBFS"] * by_breadth, "-o", "pan", "pan.c"], directory)
        began = time.monotonic()
        report = _run([str(Path(directory, "pan")), "-E", "-m100000"], directory)
        seconds = time.monotonic() - began
        trail: tuple[str, ...] = ()
        if (trail_file := Path(directory, f"{model.name}.trail")).exists():
            replay = ["spin", *switches, "-k", str(trail_file), "-T", str(model)]
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
        if not re.match(
            r"(worker \d|attempt \d|cutover \d|broker|group|network|stop|ANOMALY): ", line
        ):
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
        f"({found.states:,} states, {found.seconds:.1f} s, {found.megabytes:.0f} MB"
        f"{f', {len(found.trail) - 1} events' if found.trail else ''})"
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
