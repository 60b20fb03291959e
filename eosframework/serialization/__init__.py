"""Conversion between bytes and Python values: serdes, schemas, references to user code.

Internal: no module here is public.
"""
