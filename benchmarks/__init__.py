"""Speed and memory, as ratios within one run: `python -m benchmarks`, `make bench`.

Owns the inputs, the contestants, the way of measuring and the tables. Refuses to know how the
worker works inside: it runs the command line and watches what gets committed.
"""
