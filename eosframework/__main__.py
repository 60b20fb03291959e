"""The program `eosframework`, also as `python -m eosframework`."""

import sys

from eosframework.process.interrupts import end_on_interrupt


def main() -> None:
    """Run the command line; every import but the first comes after `end_on_interrupt`."""
    end_on_interrupt(sys.argv[1:])
    from eosframework.process.signals import run_and_exit

    def run() -> None:
        from eosframework.cli import main

        main()

    run_and_exit(run)


if __name__ == "__main__":
    main()
