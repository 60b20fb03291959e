"""Request /livez or /readyz of each process of this container; exit with 1 if one fails.

    python3 -I health.py /livez [PORT]

The port is that of EOS_WORKER__HTTP_ADDRESS, or of EOS_OUTBOX__HTTP_ADDRESS. Processes of one
worker have consecutive ports, so the search ends at the first port without a listener. The answers
are printed: `docker inspect` and `kubectl describe` show them.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 3.0
MOST_PROCESSES = 256


def ask(port: int, path: str) -> tuple[bool, str] | None:
    """Return True if the process at a port is well, with its answer; None if no process listens."""
    address = f"http://127.0.0.1:{port}{path}"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as answer:
            return True, answer.read().decode()
    except urllib.error.HTTPError as error:
        return False, error.read().decode()
    except urllib.error.URLError as error:
        return None if isinstance(error.reason, ConnectionRefusedError) else (False, str(error))
    except OSError as error:
        return False, str(error)


def first_ports() -> list[int]:
    """Return the ports of the first process of a worker, and of a relay."""
    names = ("EOS_WORKER__HTTP_ADDRESS", "EOS_OUTBOX__HTTP_ADDRESS")
    addresses = [os.environ[name] for name in names if name in os.environ]
    return sorted({int(address.rpartition(":")[2]) for address in addresses})


def answers(first_port: int, path: str) -> list[tuple[bool, str]]:
    """Return the answers of the processes from a port upwards."""
    found: list[tuple[bool, str]] = []
    for port in range(first_port, first_port + MOST_PROCESSES):
        answer = ask(port, path)
        if answer is None:
            break
        found.append(answer)
    return found


def main(path: str, port: str | None = None) -> int:
    """Print the answers and return the exit code."""
    ports = [int(port)] if port else first_ports()
    found = [answer for first_port in ports for answer in answers(first_port, path)]
    print("\n".join(text for _, text in found) or f"no process listens at port {ports}")
    return 0 if found and all(good for good, _ in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
