"""Joins of streams and tables, and the rows that they keep."""
