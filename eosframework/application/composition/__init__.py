"""Composition roots: build workers, table writers and relays from settings and a topology.

Internal: no module here is public.
"""
