"""The resolve pass: a graph with functions and serdes.

Takes a `LoadedApp`, runs lint and lowering, and gives a `graph.Graph`: functions are imported,
serdes are made, nodes are linked and sub-topologies are named.
"""
