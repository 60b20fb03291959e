"""Resolution: a spec becomes a graph with functions and serdes found."""
