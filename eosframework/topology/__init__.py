"""Topologies, from a declaration to a graph with resolved functions.

A topology goes through passes, each over the whole:

1. `loader`, or `dsl`: a file or Python calls give a `spec.LoadedApp`.
2. `lint`: takes it and returns all findings, each with its place; changes nothing.
3. `lowering`: takes an app without errors and cuts its streams at repartition topics; gives a
   `Lowered` app with the effective error policies and the known serdes.
4. `resolve`: runs 2 and 3, imports functions and serdes, links nodes; gives a `graph.Graph`.

Only `resolve` knows both spec and graph. `evolution` compares a graph with the one that ran before.
Pure: nothing here talks to a broker or processes a record.

Internal: no module here is public.
"""
