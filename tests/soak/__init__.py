"""Randomised runs against real brokers, and a checker over everything that was read of them.

`python -m tests.soak --minutes 5 --seed 7` breaks workers, connections and brokers by a schedule
that follows from the seed, while a reader reads along: workers are killed, suspended beyond their
session and their transaction, stopped, and started twice under one name; requests are held and
delivered late, responses lost, connections broken; brokers are suspended and, of three, killed;
files of stores are damaged; a foreign transaction hangs in the changelog; positions are set to
their values; functions are slow, outputs large or rejected; two of a hundred records are hostile;
and a second application starts at the end of the input, is reset, and its dead letters are
replayed. Afterwards the checker compares what readers got, what the brokers' own logs hold and what
the workers called. It refuses to share code with the framework: it sees topics, logs on disk, and
the journal that the topology's own function writes.
"""
