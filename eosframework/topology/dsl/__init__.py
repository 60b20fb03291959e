"""The Python DSL: streams, operators, windows and stores as method calls.

Takes calls on a `Topology`, which it records in order. Gives a `LoadedApp`, the same as a YAML
file does.
"""
