"""The lowering pass: streams cut at repartition topics.

Takes a `LoadedApp` without lint errors. Gives a `Lowered` app without `group_by`, in which every
stream states its error policy, with the known serdes at the end of each stream. Also finds the
connected parts (future sub-topologies) of any spec, and its changes that replace records.
"""
