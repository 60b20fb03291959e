"""Hostile records: a table of cases, a fuzzer, and a verifier that accounts for every input.

One application has a lane for each kind of step and serde; all of them read at the same time, so a
record that ends a process or holds a partition up shows in every lane. The verifier shares no code
with the framework: it knows what was fed and at which offset, and reads what became of it.
"""
