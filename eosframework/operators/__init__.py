"""What keyed steps do with a record and a store: aggregates, windows, joins, timers.

Owns the semantics: which record updates what, when a window closes, what a null does. Pure: an
operator sees stores as sessions over an open transaction and time as the timestamps of records.
It refuses to know of Kafka, of tasks, and of how a store is kept.
"""
