"""`eosframework run-worker TOPOLOGY …`, with the topics that `eosframework apply` creates."""

from __future__ import annotations

import os
import subprocess
import sys

if __name__ == "__main__":
    program = [sys.executable, "-m", "eosframework"]
    servers = f"kafka.bootstrap_servers={os.environ['BENCH_BOOTSTRAP_SERVERS']}"
    subprocess.run([*program, "apply", sys.argv[2], "--set", servers], check=True)
    os.execv(sys.executable, [*program, *sys.argv[1:]])
