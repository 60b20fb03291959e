"""The lowering pass: a spec without constructs that consist of others.

Takes a `LoadedApp` without lint errors. Gives a `Lowered` spec in which streams are cut at
repartition topics, every stream states its error policy, and the serdes at the end of each stream
are known. Also finds the connected parts (future sub-topologies) of any spec.
"""
