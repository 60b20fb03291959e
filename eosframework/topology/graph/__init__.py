"""A checked topology as the worker runs it: nodes with resolved functions."""
