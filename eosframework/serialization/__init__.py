"""Conversion between bytes and Python values: serdes, schemas, references, shipped tables.

Internal: no module here is public.
"""
