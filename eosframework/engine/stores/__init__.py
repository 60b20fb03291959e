"""Stores as tasks see them: their ports, and reads by other threads."""
