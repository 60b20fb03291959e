"""The program `eosframework`, also as `python -m eosframework`."""

import sys

from eosframework.process.interrupts import end_on_interrupt

_NOT_ON_WINDOWS = (
    "error: eosframework needs fork and file locks, which Windows does not have; run it in WSL 2 "
    "or in a container"
)


def main() -> None:
    """Run the command line; every import but the first comes after `end_on_interrupt`."""
    if sys.platform == "win32":
        print(_NOT_ON_WINDOWS, file=sys.stderr)
        sys.exit(2)
    end_on_interrupt(sys.argv[1:])
    from eosframework.process.memory import collect_rarely
    from eosframework.process.signals import run_and_exit, show_stacks

    collect_rarely()
    show_stacks()

    def run() -> None:
        from eosframework.cli import main

        main()

    run_and_exit(run)


if __name__ == "__main__":
    main()
