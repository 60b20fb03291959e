"""The program of a guard; `guard.Guard` runs it as `python -m`, so it may import the servers."""

from __future__ import annotations

import sys
from pathlib import Path

from eosframework.embedded.kafka_cluster import find_kafka
from eosframework.embedded.postgres_server import find_postgres


def main() -> None:
    """Wait for the end of standard input, then kill the server in the directory."""
    sys.stdin.buffer.read()
    for find in (find_kafka, find_postgres):
        if server := find(Path(sys.argv[1])):
            server.kill()


if __name__ == "__main__":
    main()
