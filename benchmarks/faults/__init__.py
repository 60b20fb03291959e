"""The same faults for every contestant, and one judge: `python -m benchmarks faults`.

Owns the faults, the trials, the judge and the page docs/compared.md. Refuses to know how a
contestant works inside: it starts processes, sees their requests on the wire, and reads what
brokers show to every reader.
"""
