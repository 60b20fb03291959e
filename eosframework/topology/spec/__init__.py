"""The first form of a topology: what a user declared, as data.

Takes a YAML file (`loader`) or calls of the Python DSL (`dsl`); both give the same models.
Gives a `LoadedApp`: a `TopologySpec` with the place of each part. Each model checks its own
fields; checks across parts belong to `lint`. Imports nothing of `graph`.
"""
