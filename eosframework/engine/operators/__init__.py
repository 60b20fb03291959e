"""The keyed steps: aggregates, windows, joins and timers over a record and a store.

Owns their semantics: the records that update an entry, the time at which a window closes, the
effect of a null. Pure: an operator sees a store through the open transaction and time as the
timestamps of records. It knows neither Kafka nor tasks nor how a store is kept.

Internal: no module here is public.
"""
