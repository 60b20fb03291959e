"""The functions of the topologies that the fault tests run."""

from __future__ import annotations

import base64
import ctypes
import os
import random
import time
from pathlib import Path
from typing import Any


def double(value: dict[str, int]) -> dict[str, int]:
    return {"n": value["n"] * 2}


def older(value: bytes, version: int) -> dict[str, int]:
    return {"n": len(value) + version}


def triple(value: dict[str, int]) -> dict[str, int]:
    return {"n": value["n"] * 3}


def refuse_thirteen(value: dict[str, int]) -> dict[str, int]:
    if value["n"] == 13:
        raise ValueError("thirteen is not served")
    return value


def refuse_threes(value: dict[str, int]) -> dict[str, int]:
    """Refuse one number in ten until the file is there that EOS_TEST_MENDED names."""
    if value["n"] % 10 == 3 and not Path(os.environ.get("EOS_TEST_MENDED", "no")).exists():
        raise ValueError(f"{value['n']} is not served yet")
    return value


def noise(seed: int, length: int) -> str:
    """Return text that no codec makes much smaller, the same for each seed."""
    return base64.b64encode(random.Random(seed).randbytes(length * 3 // 4)).decode()


def inflate(value: dict[str, int]) -> dict[str, Any]:
    """Make record 13 larger than the topic takes."""
    return {"n": value["n"], "padding": noise(value["n"], 20_000) if value["n"] == 13 else ""}


def inflate_bad(value: dict[str, int]) -> dict[str, Any]:
    """Make each record that is bad larger than the topic takes."""
    return {"n": value["n"], "padding": noise(value["n"], 20_000) if value["bad"] else ""}


def sleep_if_bad(value: dict[str, int]) -> dict[str, int]:
    """Take 3.3 seconds for each record that is bad."""
    if value["bad"]:
        time.sleep(3.3)
    return value


def pad(value: dict[str, int]) -> dict[str, Any]:
    """Make every record a third of what the topic takes, so that a batch exceeds it."""
    return {"n": value["n"], "padding": noise(value["n"], 3_000)}


def never_return_at_thirteen(value: dict[str, int]) -> dict[str, int]:
    """Hang at record 13 while EOS_TEST_HANGS is set."""
    while value["n"] == 13 and os.environ.get("EOS_TEST_HANGS"):
        try:
            time.sleep(0.01)
        except Exception:
            continue
    return value


def hang_in_c_at_thirteen(value: dict[str, int]) -> dict[str, int]:
    """Wait in C for ever, for a lock that this thread has; no signal interrupts it."""
    if value["n"] == 13:
        mutex = ctypes.create_string_buffer(128)
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    return double(value)


def wait_for_release(value: dict[str, int]) -> dict[str, int]:
    """Hold record 13 until the test releases it."""
    directory = Path(os.environ["EOS_TEST_FAULT_DIRECTORY"])
    if value["n"] == 13 and not (directory / "release").exists():
        (directory / "function.fired").write_text("")
        while not (directory / "release").exists():
            time.sleep(0.01)
    return value


def by_parity(record: Any) -> str:
    """Send even numbers to one topic and odd ones to the other."""
    application = record.topic.removesuffix(".in")
    return f"{application}.{'tripled' if record.value['n'] % 2 else 'doubled'}"


def by_chance(value: dict[str, int]) -> bool:
    """Keep two records of three, others each time."""
    return random.random() < 2 / 3


def at_this_moment(value: dict[str, int]) -> dict[str, int]:
    return {"n": value["n"], "nanoseconds": time.time_ns()}


def refuse_all(value: dict[str, int]) -> dict[str, int]:
    raise ValueError("this function must not run")


def tens(record: Any) -> str:
    """One of ten keys."""
    return str(record.value["n"] % 10)


def number_of(value: dict[str, int]) -> int:
    return value["n"]


def tens_of_even(record: Any) -> str | None:
    """One of five keys; an odd number has none."""
    return None if record.value["n"] % 2 else tens(record)


def times(value: dict[str, int], factor: dict[str, int]) -> dict[str, int]:
    return {"n": value["n"] * factor["n"]}


def no_total() -> dict[str, int]:
    return {"count": 0, "sum": 0}


def add_to_total(total: dict[str, int], value: dict[str, int]) -> dict[str, int]:
    """Change the aggregate in place, and hang at the number that EOS_TEST_HANGS_AT names."""
    while os.environ.get("EOS_TEST_HANGS_AT") == str(value["n"]):
        pass
    total["count"] += 1
    total["sum"] += value["n"]
    return total


def fifties(record: Any) -> str:
    """Give fifty numbers in a row the same key, of ten."""
    return str(record.value["n"] // 50 % 10)


def inflate_thirds(result: Any) -> dict[str, Any]:
    """Make the result of every third window of 100 ms larger than its topic takes."""
    padding = noise(result.start, 20_000) if result.start // 100 % 3 == 0 else ""
    return {"start": result.start, "n": result.value, "padding": padding}


def inflate_last(count: int) -> dict[str, Any]:
    """Make a count of 50 larger than its topic takes."""
    return {"n": count, "padding": noise(count, 20_000) if count == 50 else ""}


def slow(value: dict[str, int]) -> dict[str, int]:
    """Take half a second for each number."""
    time.sleep(0.5)
    return value


def slow_later(value: dict[str, int]) -> dict[str, int]:
    """Take a quarter of a second for each number behind the first 2,000."""
    if value["n"] >= 2000:
        time.sleep(0.25)
    return value


def slow_at_ten(value: dict[str, int]) -> dict[str, int]:
    """Take three seconds for number 10."""
    if value["n"] == 10:
        time.sleep(3)
    return value


def slow_result(result: Any) -> Any:
    """Take half a second for each result."""
    time.sleep(0.5)
    return result


def thousands(record: Any) -> str:
    """One of a thousand keys."""
    return str(record.value["n"] % 1000)


def by_number(record: Any) -> bytes:
    return str(record.value["n"]).encode()


def foreign_key(record: Any) -> str | None:
    return record.value["of"]


def both_rows(left: dict[str, Any], right: dict[str, Any] | None) -> dict[str, Any]:
    return {"left": left, "right": right}
