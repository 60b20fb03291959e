"""Backfills in this process; whole ones by the command line are in tests/faults."""
