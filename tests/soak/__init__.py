"""Randomised runs against real brokers, and a checker over everything that was read of them.

`python -m tests.soak --minutes 5 --seed 7` breaks workers, connections and brokers by a schedule
that follows from the seed, while a reader reads along; afterwards the checker compares what
readers got, what the brokers' own logs hold and what the workers called. It refuses to share code
with the framework: it sees topics, logs on disk, and the journal that the topology's own function
writes.
"""
