"""Topologies, from a declaration to a graph with resolved functions.

A topology goes through passes; each takes the whole result of the one before:

1. `loader`, with `yaml_reader` or `dsl`: a file or Python calls give a `spec.LoadedApp`.
2. `lint`: takes the spec and returns all findings, each with its place; changes nothing.
3. `lowering`: rewrites the spec without the constructs that consist of others (table sinks,
   parts of streams that are tables).
4. `resolve`: imports functions and serdes, links nodes and returns a `graph.Graph`.

`evolution` compares a graph with the one that ran before. Pure: nothing here talks to a broker or
processes a record.
"""
