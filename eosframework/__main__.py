"""`python -m eosframework`."""

from eosframework.cli import main

main()
