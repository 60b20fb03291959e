"""The program `eosframework`, also as `python -m eosframework`."""

import os
import signal
import sys

from eosframework.process.interrupts import ended_at_once, is_long_running
from eosframework.process.signals import exit_at_once, handled, run_and_exit

_NOT_ON_WINDOWS = (
    "error: eosframework needs fork and file locks, which Windows does not have; run it in WSL 2 "
    "or in a container"
)


def main() -> None:
    """Run the command line; on a signal while its modules are imported, end quietly."""
    if sys.platform == "win32":
        print(_NOT_ON_WINDOWS, file=sys.stderr)
        sys.exit(2)
    if os.getpid() == 1:  # in a container; the kernel applies no default action to process 1
        signal.signal(signal.SIGTERM, _end)
    if is_long_running(sys.argv[1:]):
        with handled(exit_at_once):
            from eosframework.cli import main as run
        run_and_exit(run)
    else:
        with ended_at_once(sys.argv[1:]):
            from eosframework.cli import main as run

            run_and_exit(run)


def _end(*_: object) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
