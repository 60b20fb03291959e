"""A topology as data, the same whether it was written in YAML or in Python."""
