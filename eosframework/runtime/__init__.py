"""Composition roots: build workers, table writers and relays from settings and a topology."""
