"""`python -m tests.soak`: one run, told line by line; exit code 1 if something was wrong."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.run import RESOURCES, Settings, soak
from tests.soak.schedule import everything


def main() -> int:
    """Run what the command line says."""
    options = _parser().parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    settings = Settings(
        seed,
        options.minutes * 60,
        everything(options.nodes),
        options.nodes,
        hostile_percent=options.hostile,
    )
    print(settings.command, flush=True)
    result = soak(settings, directory, lambda line: print(line, flush=True))
    print(result)
    kept = Path(tempfile.gettempdir()) / f"soak-{seed}.csv"
    shutil.copyfile(directory / RESOURCES, kept)
    print(f"memory, descriptors and threads of each worker are in {kept}")
    if result.clean:
        shutil.rmtree(directory)
        return 0
    print(f"logs and data are in {directory}; the same schedule again: {settings.command}")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long to break things")
    parser.add_argument("--seed", type=int, help="of the schedule; default: a new one")
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 3), help="brokers")
    parser.add_argument("--hostile", type=float, default=2.0, help="percent of hostile records")
    return parser


if __name__ == "__main__":
    sys.exit(main())
