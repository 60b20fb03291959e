"""Effects outside of Kafka that do not repeat: their journal, and the calls that it permits.

Owns the entries of tasks and the id that writes them (ADR 36). The calls themselves run in
`engine/calls`; the transaction of a record gets results as those of any other call.
"""
