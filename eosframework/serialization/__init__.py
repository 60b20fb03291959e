"""Conversion between bytes and Python values: serdes, schemas, references to user code."""
