"""Composition roots: settings and a topology become a running worker, table writer or relay."""
