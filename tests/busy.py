"""A command alongside a load: `python -m tests.busy --load 8 -- make test`.

A race between a test and what it watches shows on a busy machine long before it shows on a quiet
one. The load is seven loops that compute and one process that writes and syncs a file; each of the
eight wants a processor or the disk all the time. They end with the command, however it ends.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

WRITTEN_BYTES = 64 * 1024 * 1024
BLOCK = b"\0" * 1024 * 1024


def compute() -> None:
    """Use a processor until this process is ended."""
    number = 1
    while True:
        number = number * 1_103_515_245 + 12_345 & 0xFFFF_FFFF


def write(directory: str) -> None:
    """Write a file and sync it to the disk, again and again, until this process is ended."""
    with tempfile.TemporaryFile(dir=directory) as file:
        while True:
            file.seek(0)
            for _ in range(WRITTEN_BYTES // len(BLOCK)):
                file.write(BLOCK)
            file.flush()
            os.fsync(file.fileno())


def run(command: Sequence[str], load: int) -> int:
    """Run `command` alongside `load` busy processes; return its exit code.

    Args:
        command: with its arguments.
        load: how many processes; one of them writes, the others compute.
    """
    directory = tempfile.gettempdir()
    busy = [multiprocessing.Process(target=compute, daemon=True) for _ in range(load - 1)]
    busy.append(multiprocessing.Process(target=write, args=[directory], daemon=True))
    for process in busy:
        process.start()
    try:
        started = subprocess.Popen(command)
        try:
            return started.wait()
        except KeyboardInterrupt:
            # The terminal interrupts the command too; killed, tests would leave their servers.
            return started.wait()
    finally:
        for process in busy:
            process.kill()
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.busy", description=__doc__)
    parser.add_argument("--load", type=int, default=8, help="busy processes (default: 8)")
    parser.add_argument("command", nargs="+", help="the command and its arguments, behind --")
    given = parser.parse_args()
    if given.load < 1:
        parser.error(f"--load is {given.load}; expected 1 or more")
    try:
        code = run(given.command, given.load)
    except FileNotFoundError:
        parser.error(f"there is no program {given.command[0]!r}")
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
