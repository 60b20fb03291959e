"""`python -m tests.hostile`: the fuzzer, told round by round; exit code 1 if something was wrong.

The servers are those of EOS_TEST_BOOTSTRAP and EOS_TEST_DSN, or started for this run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from eosframework.postgres.database.scratch import create_database
from eosframework.testing.providers import choose_provider
from tests.conftest import QUICK_POSTGRES, SMALL_BROKER
from tests.hostile.drawing import Drawing
from tests.hostile.world import HostileWorld
from tests.support.servers.schema_registry import start_registry

RECORDS = 500
"""Of a round."""


def main() -> int:
    """Run what the command line says."""
    options = _parser().parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
    ends_at = time.monotonic() + options.minutes * 60
    with ExitStack() as stack:
        kafka = choose_provider("kafka", None, os.environ, lambda name: directory / name)
        postgres = choose_provider("postgres", None, os.environ, lambda name: directory / name)
        servers = stack.enter_context(kafka.kafka(SMALL_BROKER))
        dsn = create_database(stack.enter_context(postgres.postgres(QUICK_POSTGRES)))
        registry = start_registry(directory)
        stack.callback(registry.stop)
        registry.wait_until_up()
        name = f"fuzz.{uuid.uuid4().hex[:12]}"
        world = HostileWorld(servers, name, directory / "world", dsn, registry.url)
        stack.callback(world.close)
        world.start()
        while time.monotonic() < ends_at:
            if wrong := _round(world, seed):
                print("\n".join(wrong))
                print(f"logs are in {directory / 'world'}; again: make fuzz SEED={seed}")
                return 1
            seed += 1
        codes = world.stop()
    print(f"the workers ended with {codes}")
    shutil.rmtree(directory)
    return int(codes != [0, 0])


def _round(world: HostileWorld, seed: int) -> list[str]:
    """Feed the records of a seed, and return what became of them that should not have."""
    world.feed(Drawing(seed).inputs(RECORDS, world.moment))
    try:
        world.wait()
    except AssertionError as error:
        return [str(error)]
    sizes = ", ".join(f"{size} MB" for size in world.megabytes())
    print(f"seed {seed}: {world.seen_of_round()}; workers have {sizes}", flush=True)
    wrong = world.wrong()
    world.forget()
    return wrong


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to draw records")
    parser.add_argument("--seed", type=int, help="of the first round; default: a new one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
