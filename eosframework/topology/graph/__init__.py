"""The last form of a topology: a graph of nodes with resolved functions and serdes.

`resolve` builds it; workers, the table writer and the checks at start read it. The modules here
define its nodes and derive facts from it; they read neither files nor specs.
"""
